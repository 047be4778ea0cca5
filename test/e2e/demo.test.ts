// `cprg demo`, as built: offline, and with a model's server of our own.

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { calls, MODEL_KEY, says, startModelServer } from "../helpers/model-server.ts";
import { call, type Home, makeHome } from "./cprg.ts";

/** Variables of a demo whose temporary files can be looked for. */
function demoEnv(home: Home) {
  const temporary = join(home.path, "tmp");
  mkdirSync(temporary, { recursive: true });
  return { ...home.env, TMPDIR: temporary };
}

function leftBehind(home: Home): string[] {
  return readdirSync(join(home.path, "tmp")).filter((name) => name.startsWith("cprg-"));
}

/** The offline one needs no network at all: it has none but its own loopback. */
const OFFLINE = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$0" "$@"'];

test("offline, a scripted agent does its task on a worker, and nothing is left", async () => {
  using home = makeHome();
  const shell = process.getuid?.() === 0 ? OFFLINE : [];
  const { code, out, err } = await call(["demo"], { env: demoEnv(home), shell });
  expect([code, err]).toEqual([0, ""]);
  for (const text of [
    /^plane {4}listens for workers on 127\.0\.0\.1:\d+$/m,
    /^agent {4}step 1: exec .*: status 0$/m,
    /^agent {4}step 2: write .*: wrote \d+ bytes/m,
    /^agent {4}step 3: edit /m,
    /^agent {4}step 5: read .*: os: Linux/m,
    /^result {3}report\/os\.txt says: os: Linux/m,
    /^end {6}succeeded after /m,
  ]) {
    expect(out).toMatch(text);
  }
  expect(leftBehind(home)).toEqual([]);
});

test("with a model it goes through every tool to the end", async () => {
  using home = makeHome();
  await using model = startModelServer((_, index) => {
    if (index === 0) return calls("write", { path: "a.txt", content: "one" });
    if (index === 1) return calls("edit", { path: "a.txt", old: "one", new: "two" });
    if (index === 2) return calls("exec", { command: "cat a.txt; env; cat /proc/$PPID/environ" });
    if (index === 3) return calls("read", { path: "a.txt" });
    return says("the model is done");
  });
  const words = ["demo", "--model", "openai:test-model", "--base-url", model.url];
  const env = { ...demoEnv(home), CPRG_AGENT_KEY: MODEL_KEY };
  const { code, out } = await call([...words, "--isolate", "off", "write a file"], { env });
  expect(code).toBe(0);
  expect(out).toContain("result   the model is done");
  const seen = model.requests.map(({ body }) => JSON.stringify(body.messages));
  expect(seen[0]).toContain("write a file");
  expect(seen[3]).toContain("two");
  expect(seen.join("")).not.toContain(MODEL_KEY);
  expect(out).not.toContain(MODEL_KEY);
  expect(leftBehind(home)).toEqual([]);
});

test("a bad key and a model that never stops end with 1 and a reason", async () => {
  using home = makeHome();
  await using model = startModelServer(() => calls("rm", {}));
  const words = ["demo", "--model", "openai:m", "--base-url", model.url, "--isolate", "off"];
  const bad = await call(words, { env: { ...demoEnv(home), CPRG_AGENT_KEY: "sk-bad-0123456789" } });
  expect(bad.code).toBe(1);
  expect(bad.err).toContain("refused the key (HTTP 401)");
  expect(bad.err).not.toContain("sk-bad");
  const odd = await call(words, { env: { ...demoEnv(home), CPRG_AGENT_KEY: MODEL_KEY } });
  expect([odd.code, odd.err]).toEqual([1, expect.stringContaining("malformed")]);
  expect(leftBehind(home)).toEqual([]);
});

test("what cannot start says why", async () => {
  using home = makeHome();
  const env = demoEnv(home);
  expect((await call(["demo", "--model", "gpt-5"], { env })).code).toBe(2);
  expect((await call(["demo", "--model", "openai:gpt-5"], { env })).code).toBe(2);
  expect((await call(["demo", "--isolate", "some"], { env })).code).toBe(2);
});
