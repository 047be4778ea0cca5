// The client commands of the compiled binary against a server of it.

import { afterAll, beforeAll, expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { pidsWith } from "../helpers/processes.ts";
import { call, type Home, makeHome, readText, start } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true });
const { test } = host;

let home: Home;
let server: Serving;
beforeAll(async () => {
  if (host.missing.length > 0) return;
  home = makeHome();
  server = await serve(home, { words: ["--tenant-concurrency", "4"] });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

function client(words: readonly string[], extra: Record<string, string> = {}) {
  return call(words, { env: { ...home.env, CPRG_SERVER: server.url, ...extra } });
}

test("run --server streams output, takes everything along, and has the program's exit code", async () => {
  const input = join(home.path, "input");
  writeFileSync(input, "typed");
  const program = `import sys, os
print(sys.argv[1], sys.stdin.read(), open("f").read(), os.environ["A"])
sys.stderr.write("err"); sys.exit(5)`;
  const flags = ["--stdin", input, "--file", `${input}=f`, "--env", "A=b", "--timeout", "20"];
  const ended = await client(["run", ...flags, "-c", program, "--", "arg"]);
  expect(ended).toEqual({ code: 5, out: "arg typed typed b\n", err: "err" });
});

test("run --server refuses what only a run on this machine heeds", async () => {
  for (const flags of [
    ["--out", "x"],
    ["--sandbox", "off"],
    ["--binds", "/srv"],
  ]) {
    const ended = await client(["run", ...flags, "-c", "1"]);
    expect(ended).toMatchObject({ code: 2, out: "" });
    expect(ended.err).toContain(`Cannot use ${flags[0]} with --server`);
  }
  const here = await client(["run", "--server", "", "--sandbox", "off", "-c", "print(1)"]);
  expect(here).toMatchObject({ code: 0, out: "1\n" });
});

test("run --server prints while the program runs, and Ctrl-C cancels it there", async () => {
  const mark = `e2e-${crypto.randomUUID()}`;
  const program = "import time; print('ready', flush=True); time.sleep(60)";
  const env = { ...home.env, CPRG_SERVER: server.url };
  const child = start(["run", "-c", program, "--", mark], { env });
  await readText(child.stdout).until(/ready/);
  child.kill("SIGINT");
  expect(await child.exited).toBe(130);
  expect(pidsWith(mark)).toEqual([]);
});

test("run --server --save keeps the server's sealed log, --json its result", async () => {
  const log = join(home.path, "there.ndjson");
  const ended = await client(["run", "--json", "--save", log, "-c", "print(1)"]);
  expect(ended).toMatchObject({ code: 0, err: "" });
  expect(JSON.parse(ended.out)).toMatchObject({ status: "succeeded", stdout: "1\n" });
  expect((await client(["verify", log])).code).toBe(0);
});

test("jobs lists them, newest first, for people and for programs", async () => {
  const first = await server.submit({ language: "python", code: "print(1)" });
  const second = await server.submit({ language: "python", code: "raise SystemExit(9)" });
  for (const id of [first, second]) await server.request(`/v1/jobs/${id}/result`);
  const { out } = await client(["jobs", "--limit", "2", "--json"]);
  const { jobs } = JSON.parse(out) as { jobs: { job_id: string; status: string }[] };
  expect(jobs.map(({ job_id }) => job_id)).toEqual([second, first]);
  const table = await client(["jobs", "--status", "failed", "--limit", "1"]);
  expect(table.out).toMatch(new RegExp(`^JOB .*\\n${second} +failed +9 +python `));
});

test("logs prints a job's bytes to where it wrote them, live with -f", async () => {
  const program = `import sys, time
sys.stdout.buffer.write(bytes([0, 255, 10])); sys.stdout.flush()
sys.stderr.write("err"); sys.stderr.flush()
time.sleep(60)`;
  const id = await server.submit({ language: "python", code: program });
  const env = { ...home.env, CPRG_SERVER: server.url };
  const child = start(["logs", "-f", id], { env });
  await readText(child.stderr).until(/err/);
  expect((await client(["cancel", id])).out).toBe(`${id} cancelled\n`);
  expect(await child.exited).toBe(0);
  expect(await child.stdout.bytes()).toEqual(new Uint8Array([0, 255, 10]));
  const again = await client(["logs", "--json", id]);
  expect(
    again.out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).kind),
  ).toContain("finished");
  const twice = await client(["cancel", id]);
  expect(twice).toMatchObject({ code: 1, out: "" });
  expect(twice.err).toContain("it is cancelled");
});

test("replay shows every event, and exports a log that verify checks", async () => {
  const id = await server.submit({ language: "python", code: "print('exported')" });
  await server.request(`/v1/jobs/${id}/result`);
  const shown = await client(["replay", id]);
  for (const text of ["queued", "started", '"exported\\n"', "finished"]) {
    expect(shown.out).toContain(text);
  }
  const path = join(home.path, "export.ndjson");
  expect((await client(["replay", id, "--export", path])).code).toBe(0);
  expect((await client(["verify", path])).out).toContain(`verified: job:${id}, `);
  writeFileSync(path, readFileSync(path, "utf8").replace("exported", "forged!!"));
  expect((await client(["verify", path])).code).toBe(1);
});

test("a file that takes no more is named, and the server is not blamed", async () => {
  const saved = await client(["run", "--save", "/dev/full", "-c", "print(1)"]);
  expect(saved).toMatchObject({ code: 1, out: "1\n" });
  const id = await server.submit({ language: "python", code: "print(1)" });
  await server.request(`/v1/jobs/${id}/result`);
  const exported = await client(["replay", id, "--export", "/dev/full"]);
  expect(exported).toMatchObject({ code: 1, out: "" });
  for (const { err } of [saved, exported]) {
    expect(err).toContain('Cannot write "/dev/full": ENOSPC');
  }
});

test("run --server with an unknown language says where to find the known ones", async () => {
  const ended = await client(["run", "--lang", "ruby", "-c", "1"]);
  expect(ended).toMatchObject({ code: 2, out: "" });
  expect(ended.err).toContain('Cannot use language "ruby": unknown\n');
  expect(ended.err).toContain('hint: "cprg languages" lists those of the server');
});

test("languages lists what the host has", async () => {
  expect((await client(["languages"])).out).toMatch(/^python +3\.\d+/m);
});

test("a wrong key is refused with 3, a job of nobody is not found, no server is 4", async () => {
  const other = { CPRG_KEY: "0123456789abcdef-other" };
  expect(await client(["jobs"], other)).toMatchObject({ code: 3, out: "" });
  const nobody = "0197a3f0-1111-7222-8333-444455556666";
  expect(await client(["logs", nobody])).toMatchObject({ code: 1, out: "" });
  const words = ["jobs", "--server", "http://127.0.0.1:1"];
  expect(await client(words)).toMatchObject({ code: 4, out: "" });
});

test("jobs ends quietly with 141 when its reader goes away", async () => {
  const shell = Bun.spawn(
    [
      "bash",
      "-c",
      'exec 3>&1; { "$0" jobs --json --limit 100; echo $? >&3; } | true',
      process.env["CPRG_BIN"] ?? join(import.meta.dir, "../../dist/cprg"),
    ],
    { env: { ...home.env, CPRG_SERVER: server.url }, stdout: "pipe", stderr: "pipe" },
  );
  expect(await shell.stdout.text()).toBe("141\n");
  expect(await shell.stderr.text()).toBe("");
});
