// What the process of `cprg serve` can do on its host: little, in every thread, and for good.

import { expect } from "bun:test";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, cprgPath, makeHome, start } from "./cprg.ts";
import { makeOwnGroups } from "./own-groups.ts";
import { serve } from "./server.ts";
import { until } from "./until.ts";

const { test } = requireHost({ root: true, userns: true, cgroup: true, programs: ["setpriv"] });

const NOBODY = 65_534;
const NONE = "0000000000000000";
/** DAC_READ_SEARCH, SETGID, SETUID: what is kept where groups are the server's own. */
const LEAST = "00000000000000c4";

/** The lines about capabilities of every thread of a process, each thread's once. */
function threadSets(pid: number): string[] {
  const threads = readdirSync(`/proc/${pid}/task`).map((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, "utf8");
    return [...status.matchAll(/^(?:Cap(\w+)|NoNewPrivs):\s+(\w+)$/gm)]
      .map(([, name = "NoNewPrivs", value]) => `${name} ${value}`)
      .join(" ");
  });
  expect(threads.length).toBeGreaterThan(4);
  return [...new Set(threads)];
}

function sets(held: string): string {
  return `Inh ${NONE} Prm ${held} Eff ${held} Bnd ${held} Amb ${NONE} NoNewPrivs 1`;
}

async function json(response: Response): Promise<Record<string, unknown>> {
  return (await response.json()) as Record<string, unknown>;
}

test("every thread of a server has three capabilities, and jobs run, move files and leave nothing", async () => {
  using home = makeHome();
  using groups = makeOwnGroups();
  {
    await using server = await serve(home, { env: { CPRG_CGROUP: groups.path } });
    expect(threadSets(server.process.pid)).toEqual([sets(LEAST)]);
    expect(groups.left().length).toBeGreaterThan(0);
    const id = await server.submit({
      language: "python",
      code: "import sys; print(open('a/b').read() + sys.stdin.read())",
      stdin: "42",
      files: [{ path: "a/b", text: "6*7=" }],
    });
    const result = await json(await server.request(`/v1/jobs/${id}/result`));
    expect(result).toMatchObject({ status: "succeeded", stdout: "6*7=42\n" });
    // The store's worker and the runtime's pool have started by now.
    expect(threadSets(server.process.pid)).toEqual([sets(LEAST)]);
    const capabilities = ["CAP_DAC_READ_SEARCH", "CAP_SETGID", "CAP_SETUID"];
    expect(await json(await server.request("/v1/status"))).toMatchObject({
      privileges: { reduced: true, capabilities },
    });
    expect(await server.stop()).toBe(0);
    const record = (await server.err.rest())
      .split("\n")
      .find((line) => line.includes("privileges"));
    expect(JSON.parse(record ?? "")).toMatchObject({ level: "info", reduced: true, capabilities });
  }
  expect(groups.left()).toEqual([]);
  expect(readdirSync(join(home.path, "run/instances"))).toEqual([]);
});

test("in the topmost group and on a low port it keeps the two that these take", async () => {
  using home = makeHome();
  const address = "127.83.71.2:81";
  const env = { CPRG_CGROUP: "/" };
  await using server = await serve(home, { env, words: ["--addr", address] });
  expect(server.url).toBe(`http://${address}`);
  // DAC_OVERRIDE, SETGID, SETUID, NET_BIND_SERVICE.
  expect(threadSets(server.process.pid)).toEqual([sets("00000000000004c2")]);
  const id = await server.submit({ argv: ["/bin/echo", "hi"] });
  expect(await json(await server.request(`/v1/jobs/${id}/result`))).toMatchObject({
    stdout: "hi\n",
  });
});

test("directories in another user's are made before the right to is given up", async () => {
  using home = makeHome();
  using groups = makeOwnGroups();
  const theirs = join(home.path, "theirs");
  mkdirSync(theirs);
  chmodSync(theirs, 0o755);
  chownSync(theirs, NOBODY, NOBODY);
  const dataDir = join(theirs, "data");
  const env = {
    CPRG_CGROUP: groups.path,
    CPRG_DATA_DIR: dataDir,
    CPRG_RUN_DIR: join(theirs, "run"),
    CPRG_API_KEYS: "a-key-of-0123456789",
  };
  await using server = await serve(home, { env });
  expect(threadSets(server.process.pid)).toEqual([sets(LEAST)]);
  const { uid, mode } = statSync(dataDir);
  expect({ uid, mode: mode & 0o777 }).toEqual({ uid: 0, mode: 0o700 });
  expect((await server.request("/v1/jobs")).status).toBe(200);
});

test("a data directory of another user is refused, with the fix", async () => {
  using home = makeHome();
  using groups = makeOwnGroups();
  mkdirSync(home.dataDir);
  chownSync(home.dataDir, NOBODY, NOBODY);
  const env = { ...home.env, CPRG_CGROUP: groups.path };
  const ended = await call(["serve", "--addr", "127.0.0.1:0"], { env });
  expect(ended).toMatchObject({ code: 2, out: "" });
  expect(ended.err).toContain(`Cannot write to ${home.dataDir}: it is not root's`);
  expect(ended.err).toContain(`hint: chown -R root ${home.dataDir}`);
  expect(readdirSync(home.dataDir)).toEqual([]);
});

test("it is one process all the time: descriptors, arguments and variables are its own", async () => {
  using home = makeHome();
  const lock = join(home.path, "lock");
  writeFileSync(lock, "");
  // Bytes that are no UTF-8.
  const script = `exec 9<'${lock}'; export ODD=$'\\xff\\xfe'; exec "$0" "$@"`;
  await using server = await serve(home, {
    shell: ["/bin/bash", "-c", script],
    env: { CPRG_ENV: "development" },
  });
  const { pid } = server.process;
  expect(readlinkSync(`/proc/${pid}/fd/9`)).toBe(lock);
  const environ = readFileSync(`/proc/${pid}/environ`);
  expect(environ.includes(Buffer.from("ODD=\xff\xfe\0", "latin1"))).toBe(true);
  expect(environ.includes("_CPRG_RESTARTED=1\0")).toBe(true);
  const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  expect(words).toEqual([cprgPath(), "serve", "--addr", "127.0.0.1:0", ""]);
});

test("a variable that says it was done is not believed", async () => {
  using home = makeHome();
  const env = { ...home.env, _CPRG_RESTARTED: "1" };
  const ended = await call(["serve", "--addr", "127.0.0.1:0"], { env });
  expect(ended).toMatchObject({ code: 2, out: "" });
  expect(ended.err).toContain("Cannot give up capabilities: restarted, but it has CAP_CHOWN");
  expect(ended.err).toContain("hint: Unset _CPRG_RESTARTED");
  expect(readdirSync(home.path)).toEqual(["run"]);
});

test("what was given up already is not given up again", async () => {
  using home = makeHome();
  using groups = makeOwnGroups();
  const shell = ["setpriv", "--bounding-set", "-all,+dac_read_search,+setuid,+setgid"];
  const env = { CPRG_CGROUP: groups.path };
  await using server = await serve(home, { env, shell: [...shell, "--no-new-privs"] });
  expect(threadSets(server.process.pid)).toEqual([sets(LEAST)]);
  expect(readFileSync(`/proc/${server.process.pid}/environ`, "utf8")).not.toContain("RESTARTED");
});

test("where the bounding set may not be cut it does not start, and says why", async () => {
  using home = makeHome();
  const shell = ["setpriv", "--bounding-set", "-setpcap"];
  const ended = await call(["serve", "--addr", "127.0.0.1:0"], { ...home, shell });
  expect(ended).toMatchObject({ code: 2, out: "" });
  expect(ended.err).toContain("Cannot give up capabilities: reduce: EPERM");
  expect(ended.err).toContain("CAP_SETPCAP");
});

test("without a sandbox, and without root, nothing changes", async () => {
  using home = makeHome();
  const words = ["--sandbox", "off"];
  {
    await using server = await serve(home, { words });
    const own = readFileSync("/proc/self/status", "utf8");
    const bounding = /^CapBnd:\s+(\w+)$/m.exec(own)?.[1] ?? "";
    expect(threadSets(server.process.pid)).toEqual([sets(bounding).replace(/1$/, "0")]);
    expect(await json(await server.request("/v1/status"))).toMatchObject({
      privileges: { reduced: false, capabilities: expect.arrayContaining(["CAP_CHOWN"]) },
    });
  }
  const path = join(home.path, "nobody");
  mkdirSync(path);
  chownSync(path, NOBODY, NOBODY);
  const env = { CPRG_DATA_DIR: join(path, "data"), CPRG_RUN_DIR: join(path, "run") };
  const shell = ["setpriv", "--reuid", String(NOBODY), "--clear-groups"];
  await using server = await serve({ ...home, dataDir: env.CPRG_DATA_DIR }, { words, env, shell });
  expect(readFileSync(`/proc/${server.process.pid}/environ`, "utf8")).not.toContain("RESTARTED");
  expect(readFileSync(`/proc/${server.process.pid}/status`, "utf8")).toMatch(/^NoNewPrivs:\s+0$/m);
  const id = await server.submit({ argv: ["/usr/bin/id", "-u"] });
  expect(await json(await server.request(`/v1/jobs/${id}/result`))).toMatchObject({
    stdout: `${NOBODY}\n`,
  });
  expect(await json(await server.request("/v1/status"))).toMatchObject({
    privileges: { reduced: false, capabilities: [] },
  });
});

test("a SIGTERM while it starts anew ends it, and leaves nothing", async () => {
  using home = makeHome();
  using groups = makeOwnGroups();
  for (let round = 0; round < 10; round += 1) {
    const env = { ...home.env, CPRG_CGROUP: groups.path };
    const child = start(["serve", "--addr", "127.0.0.1:0"], { env });
    const hasBegun = (): true | null => {
      const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
      return /^NoNewPrivs:\s+1$/m.test(status) ? true : null;
    };
    await until(hasBegun, { what: "it gives up capabilities" });
    child.kill("SIGTERM");
    const code = await child.exited;
    expect([0, 143]).toContain(code);
    expect(groups.left()).toEqual([]);
  }
  await using server = await serve(home, { env: { CPRG_CGROUP: groups.path } });
  expect(threadSets(server.process.pid)).toEqual([sets(LEAST)]);
});
