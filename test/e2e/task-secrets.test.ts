// Where the variables of a task are found: in the programs that its runner starts, and nowhere else. Not
// in the control plane's store, journal and logs while the task waits, runs or has ended, nor with the worker.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { SecretSearch } from "../helpers/secret-search.ts";
import { makeHome, readText, start } from "./cprg.ts";
import { serve } from "./server.ts";
import { until } from "./until.ts";

const WORDS = ["--bridge-addr", "127.0.0.1:0", "--log", "debug"];

test("the variables of a task are in its programs' environment alone", async () => {
  using home = makeHome();
  const search = new SecretSearch();
  await using server = await serve(home, { command: "control-plane", words: WORDS });
  const send = async (path: string, body: unknown) => {
    const answer = await server.request(path, { method: "POST", body: JSON.stringify(body) });
    expect(answer.status).toBe(201);
    return (await answer.json()) as Record<string, string>;
  };
  const { token = "" } = await send("/v1/worker-tokens", { expires_in_seconds: 3600 });
  const { task_id: id } = await send("/v1/tasks", {
    runner: "shell",
    input: { commands: ["exec sleep 1000"] },
    env: { OF_TASK: search.secret },
  });
  const statusOf = async () =>
    ((await (await server.request(`/v1/tasks/${id}`)).json()) as { status: string }).status;
  expect(await statusOf()).toBe("queued");
  expect(search.inFiles(home.path)).toEqual([]);

  const own = join(home.path, "worker");
  mkdirSync(own);
  const place = ["--root", join(own, "root"), "--state-dir", join(own, "state")];
  const worker = start(["worker", "--connect", server.bridge, "--token", "-", ...place], {
    env: { ...home.env, CPRG_DATA_DIR: own, CPRG_LOG: "debug" },
  });
  worker.stdin.write(token);
  void worker.stdin.end();
  const said = [worker.stdout, worker.stderr].map((stream) => readText(stream).rest());
  try {
    await until(() => search.inProcesses()[0] ?? null, { what: "the program runs" });
    for (const found of search.inProcesses()) {
      const [pid, name] = found.split("/");
      expect(name).toBe("environ");
      // The program, or the shell that is about to become it.
      expect(readFileSync(`/proc/${pid}/cmdline`, "latin1")).toMatch(/^(sleep\0|\S*sh\0)/);
    }
    expect(search.inFiles(home.path)).toEqual([]);
    expect((await server.request(`/v1/tasks/${id}`, { method: "DELETE" })).status).toBe(200);
    await until(() => (search.inProcesses().length === 0 ? true : null), {
      what: "the program has ended",
    });
    expect(await statusOf()).toBe("cancelled");
    expect(search.inFiles(home.path)).toEqual([]);
  } finally {
    worker.kill("SIGTERM");
    await worker.exited;
  }
  expect(await server.stop()).toBe(0);
  for (const text of await Promise.all([...said, server.out.rest(), server.err.rest()]))
    expect(search.isIn(Buffer.from(text))).toBe(false);
  expect(search.inFiles(home.path)).toEqual([]);
});
