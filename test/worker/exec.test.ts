// exec.* on a host without a sandbox: output, input, terminals, and that a tree dies as a whole.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  EXEC_ATTACH,
  EXEC_INPUT,
  EXEC_RESIZE,
  EXEC_SIGNAL,
  EXEC_START,
  WORKER_REATTACH,
  WORKER_RELEASE,
} from "../../src/bridge/methods.ts";
import { pidsWith } from "../helpers/processes.ts";
import { CLAIM, type Ground, ground, refusal, run, until } from "./ground.ts";

let there: Ground;

beforeEach(async () => {
  there = await ground();
});

afterEach(async () => {
  await there[Symbol.asyncDispose]();
});

test("nothing runs before a claim", async () => {
  expect(await refusal(run(there.plane, { command: "true" }))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
  expect(await refusal(run(there.plane, { claim: null, command: "true" }))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
});

test("a program's output and its exit come in order, numbered from 1", async () => {
  await there.claim();
  const ran = await run(there.plane, {
    argv: ["sh", "-c", "printf out; printf err >&2; exit 3"],
    claim: null,
  });
  expect(ran).toMatchObject({ stdout: "out", stderr: "err" });
  expect(ran.exit).toMatchObject({ exitCode: 3, signal: "", reason: "exit", killed: 0 });
  expect(ran.exit).toMatchObject({ stdoutBytes: 3, stderrBytes: 3 });
  expect(ran.seqs).toEqual(ran.seqs.map((_, index) => index + 1));
});

test("a program gets a clean environment, the claim's and its own, and starts in the root", async () => {
  await there.claim(CLAIM, { FROM_CLAIM: "1", BOTH: "claim" });
  const { stdout } = await run(there.plane, { argv: ["env"], env: { BOTH: "exec" } });
  const names = stdout.trim().split("\n").sort();
  expect(names.filter((line) => !line.startsWith("CPRG_EXEC="))).toEqual([
    "BOTH=exec",
    "FROM_CLAIM=1",
    `HOME=${there.home}`,
    "PATH=/usr/local/bin:/usr/bin:/bin",
  ]);
  const where = await run(there.plane, { command: "pwd; mkdir sub" });
  expect(where.stdout.trim()).toBe(there.root);
  expect((await run(there.plane, { command: "pwd", cwd: "sub" })).stdout.trim()).toBe(
    join(there.root, "sub"),
  );
  expect(await refusal(run(there.plane, { command: "pwd", cwd: "../.." }))).toBe(
    "permission_denied PATH_ESCAPES",
  );
});

test("what never ran is an exit with a reason", async () => {
  await there.claim();
  const ran = await run(there.plane, { argv: ["no-such-program"] });
  expect(ran.exit).toMatchObject({ reason: "setup_failed", signal: "" });
  expect(ran.exit?.exitCode).toBeUndefined();
  expect(ran.exit?.message).toContain("no-such-program");
  expect(ran.seqs).toEqual([1]);
});

test("a directory that is not there is an error of the call, as for files", async () => {
  await there.claim();
  writeFileSync(join(there.root, "file"), "");
  symlinkSync(".", join(there.root, "link"));
  symlinkSync("/etc", join(there.root, "out"));
  const at = (cwd: string): Promise<string> => refusal(run(there.plane, { command: "true", cwd }));
  expect(await at("none")).toBe("not_found");
  expect(await at("file")).toBe("failed_precondition NOT_DIRECTORY");
  expect(await at("link")).toBe("failed_precondition IS_LINK");
  expect(await at("out/apt")).toBe("permission_denied PATH_ESCAPES");
});

test("a plain program's peak of memory is not said: the kernel counts the worker's own", async () => {
  await there.claim();
  const { exit } = await run(there.plane, { command: "true" });
  expect(exit?.memoryPeakBytes).toBeUndefined();
});

test("input that waits ends with its claim", async () => {
  await there.claim();
  const exec = { claim: CLAIM, execId: "e", command: "sleep 1000", stdinOpen: true };
  const items = there.plane.stream(EXEC_START, exec)[Symbol.asyncIterator]();
  await items.next();
  const feed = { claim: CLAIM, execId: "e", input: new Uint8Array(200_000) };
  const fed = refusal(there.plane.call(EXEC_INPUT, feed));
  await there.plane.call(WORKER_RELEASE, { claim: CLAIM });
  expect(await fed).toBe("failed_precondition NOT_CLAIMED");
  expect((await items.next()).value?.exit?.reason).toBe("interrupted");
});

test("requests that make no sense are refused", async () => {
  await there.claim();
  for (const request of [
    {},
    { command: "true", argv: ["true"] },
    { argv: [""] },
    { command: "true", execId: "a/b" },
    { command: "true", env: { "A=B": "" } },
    { command: "true", pty: { cols: 0, rows: 24 } },
    { command: "true", retainBytes: 16 * 1024 * 1024 + 1 },
    { command: "a\0b" },
  ]) {
    expect(await refusal(run(there.plane, request))).toStartWith("invalid_argument");
  }
});

test("an exec whose time is over is killed with what it started", async () => {
  await there.claim();
  const word = `cprg-timeout-${crypto.randomUUID()}`;
  const ran = await run(there.plane, {
    command: `(setsid sh -c 'sleep 100; : ${word}' &) ; sleep 100; : ${word}`,
    timeoutMs: 300,
  });
  expect(ran.exit).toMatchObject({ reason: "wall_limit", signal: "SIGKILL" });
  expect(pidsWith(word)).toEqual([]);
});

test("an exit says that what outlived the main program was killed", async () => {
  await there.claim();
  const word = `cprg-orphan-${crypto.randomUUID()}`;
  const ran = await run(there.plane, {
    command: `setsid sh -c 'sleep 100; : ${word}' >/dev/null 2>&1 & exit 0`,
  });
  expect(ran.exit).toMatchObject({ reason: "exit", exitCode: 0 });
  expect(ran.exit?.killed).toBeGreaterThanOrEqual(1);
  expect(pidsWith(word)).toEqual([]);
});

test("a cancel kills the tree before it is answered, and the claim goes on", async () => {
  await there.claim();
  const word = `cprg-cancel-${crypto.randomUUID()}`;
  const call = there.plane.stream(EXEC_START, {
    claim: CLAIM,
    execId: "x1",
    command: `setsid sh -c 'sleep 100; : ${word}' & echo up; sleep 100; : ${word}`,
  });
  const reader = call[Symbol.asyncIterator]();
  for (let out = ""; !out.includes("up"); ) {
    const { value } = await reader.next();
    out += Buffer.from(value?.stdout ?? []).toString();
  }
  expect(pidsWith(word)).not.toEqual([]);
  call.cancel("enough");
  await expect(reader.next()).rejects.toMatchObject({ code: "canceled" });
  expect(pidsWith(word)).toEqual([]);
  expect((await run(there.plane, { command: "echo on" })).stdout).toBe("on\n");
});

test("releasing a claim kills its execs and forgets its environment", async () => {
  await there.claim(CLAIM, { SECRET_OF_CLAIM: "s3cret" });
  const word = `cprg-release-${crypto.randomUUID()}`;
  const call = there.plane.stream(EXEC_START, { claim: CLAIM, command: `sleep 100; : ${word}` });
  const reader = call[Symbol.asyncIterator]();
  await reader.next();
  const { killed } = await there.plane.call(WORKER_RELEASE, { claim: CLAIM });
  expect(killed).toBe(1);
  expect(pidsWith(word)).toEqual([]);
  expect(there.holder.heldClaims()).toEqual([]);
  await there.claim({ taskId: "t2", epoch: 1 });
  const { stdout } = await run(there.plane, { claim: null, argv: ["env"] });
  expect(stdout).not.toContain("SECRET_OF_CLAIM");
});

test("input goes to the program in order, once, and ends when it is closed", async () => {
  await there.claim();
  const ran = run(there.plane, {
    argv: ["cat"],
    execId: "cat",
    stdin: Buffer.from("first\n"),
    stdinOpen: true,
  });
  const send = (input: string, offset?: number, close = false) =>
    there.plane.call(EXEC_INPUT, {
      claim: CLAIM,
      execId: "cat",
      input: Buffer.from(input),
      close,
      ...(offset === undefined ? {} : { offset }),
    });
  await until(() => there.holder.heldClaims()[0]?.execs.all.length === 1);
  expect(await send("second\n")).toEqual({ takenBytes: 13 });
  // The same again, as after an answer that got lost.
  expect(await send("second\n", 6)).toEqual({ takenBytes: 13 });
  expect(await refusal(send("x", 14))).toBe("out_of_range");
  expect(await send("", undefined, true)).toEqual({ takenBytes: 13 });
  expect((await ran).stdout).toBe("first\nsecond\n");
  expect(await refusal(send("late"))).toBe("failed_precondition INPUT_CLOSED");
  expect(await refusal(there.plane.call(EXEC_INPUT, { claim: CLAIM, execId: "no" }))).toBe(
    "not_found",
  );
});

test("without input standard input is empty, and no socket", async () => {
  await there.claim();
  const { stdout } = await run(there.plane, { command: "cat; readlink /proc/self/fd/0" });
  expect(stdout).toBe("/dev/null\n");
  const fed = await run(there.plane, {
    command: "readlink /proc/self/fd/0; cat",
    stdin: Buffer.from("x"),
  });
  expect(fed.stdout).toMatch(/^pipe:\[\d+\]\nx$/);
});

test("an exec id is taken once in a claim", async () => {
  await there.claim();
  await run(there.plane, { command: "true", execId: "one" });
  expect(await refusal(run(there.plane, { command: "true", execId: "one" }))).toBe(
    "already_exists",
  );
});

/** Of SIGUSR1 in the masks of /proc/PID/status: proc(5). */
const SIGUSR1_BIT = 1n << 9n;

test("a signal reaches the main process; other names are refused", async () => {
  await there.claim();
  const ran = run(there.plane, {
    command: "trap 'echo got; exit 9' USR1; while :; do sleep 0.01; done",
    execId: "s",
  });
  await until(() => there.holder.heldClaims()[0]?.execs.all.length === 1);
  const send = (signal: string) =>
    there.plane.call(EXEC_SIGNAL, { claim: CLAIM, execId: "s", signal });
  expect(await refusal(send("SIGSEGV"))).toStartWith("invalid_argument");
  const pid = there.holder.heldClaims()[0]?.execs.all[0]?.pid ?? 0;
  // The trap is set once it is the shell's; before its execve a child has its parent's handlers.
  await until(() => {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const caught = BigInt(`0x${/^SigCgt:\s+(\w+)$/m.exec(status)?.[1] ?? "0"}`);
    return /^Name:\s+(?:sh|dash|bash)$/m.test(status) && (caught & SIGUSR1_BIT) !== 0n;
  });
  await send("SIGUSR1");
  expect((await ran).exit).toMatchObject({ exitCode: 9 });
  await send("SIGTERM");
});

test("a terminal is the controlling one, is resized, and its output comes as stdout", async () => {
  await there.claim();
  const ran = run(there.plane, {
    command: "stty size; read line; stty size; echo to-tty > /dev/tty; echo err >&2",
    execId: "pty",
    pty: { cols: 80, rows: 24 },
    stdinOpen: true,
  });
  await until(() => there.holder.heldClaims()[0]?.execs.all.length === 1);
  await there.plane.call(EXEC_RESIZE, {
    claim: CLAIM,
    execId: "pty",
    pty: { cols: 132, rows: 43 },
  });
  await there.plane.call(EXEC_INPUT, { claim: CLAIM, execId: "pty", input: Buffer.from("go\n") });
  const { stdout, stderr, exit } = await ran;
  expect(stdout).toContain("43 132");
  expect(stdout).toContain("to-tty");
  expect(stdout).toContain("err");
  expect(stderr).toBe("");
  expect(exit).toMatchObject({ exitCode: 0 });
  await run(there.plane, { command: "true", execId: "plain" });
  expect(
    await refusal(
      there.plane.call(EXEC_RESIZE, { claim: CLAIM, execId: "plain", pty: { cols: 1, rows: 1 } }),
    ),
  ).toBe("failed_precondition NO_TERMINAL");
});

test("retained output comes at the end, the last bytes of each stream", async () => {
  await there.claim();
  const ran = await run(there.plane, {
    command: "head -c 300000 /dev/zero | tr '\\0' a; printf end; printf err >&2",
    retainBytes: 100_000,
  });
  expect(ran.stdout.length).toBe(100_000);
  expect(ran.stdout.endsWith("aaend")).toBe(true);
  expect(ran.stderr).toBe("err");
  expect(ran.exit).toMatchObject({ stdoutBytes: 300_003, stderrBytes: 3 });
});

test("large output arrives whole, whoever reads slowly holds the program and not memory", async () => {
  await there.claim();
  const bytes = 8 * 1024 * 1024;
  let seen = 0;
  for await (const item of there.plane.stream(EXEC_START, {
    claim: CLAIM,
    command: `head -c ${bytes} /dev/zero`,
  })) {
    seen += item.stdout?.length ?? 0;
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(seen).toBe(bytes);
});

test("an exec goes on when its stream is lost, and no byte of it is", async () => {
  await there.claim();
  const gate = join(there.root, "gate");
  const call = there.plane.stream(EXEC_START, {
    claim: CLAIM,
    execId: "long",
    command: `printf one; while [ ! -e ${gate} ]; do sleep 0.01; done; printf two`,
  });
  let out = "";
  const reader = call[Symbol.asyncIterator]();
  while (out !== "one") out += Buffer.from((await reader.next()).value?.stdout ?? []).toString();
  there.end.cut();
  await expect(reader.next()).rejects.toMatchObject({ code: "unavailable" });
  there.holder.awaitReattach();

  const { plane } = there.reconnect();
  expect(await refusal(run(plane, { command: "true" }))).toBe("unavailable REATTACHING");
  const { execs } = await plane.call(WORKER_REATTACH, {
    verdicts: [{ claim: CLAIM, keep: true, reason: "" }],
  });
  expect(execs).toMatchObject([{ execId: "long", ended: false }]);
  const next = execs[0]?.oldestSeq ?? 0;
  const rest = plane.stream(EXEC_ATTACH, { claim: CLAIM, execId: "long", nextSeq: next });
  await run(plane, { command: `touch ${gate}` });
  let attached = "";
  let exits = 0;
  for await (const item of rest) {
    attached += Buffer.from(item.stdout ?? []).toString();
    if (item.exit !== undefined) exits += 1;
  }
  expect(attached.endsWith("two")).toBe(true);
  expect("one".endsWith(attached.slice(0, -3))).toBe(true);
  expect(exits).toBe(1);
});

test("a claim that the control plane does not keep is ended, with its programs", async () => {
  await there.claim();
  const word = `cprg-dropped-${crypto.randomUUID()}`;
  const call = there.plane.stream(EXEC_START, { claim: CLAIM, command: `sleep 100; : ${word}` });
  await call[Symbol.asyncIterator]().next();
  there.end.cut();
  there.holder.awaitReattach();
  const { plane } = there.reconnect();
  expect(await plane.call(WORKER_REATTACH, {})).toEqual({ execs: [] });
  expect(pidsWith(word)).toEqual([]);
  expect(await refusal(run(plane, { command: "true" }))).toBe("failed_precondition NOT_CLAIMED");
});

test("an attach takes the place of the call before it, without harm to the exec", async () => {
  await there.claim();
  const gate = join(there.root, "gate");
  const first = there.plane.stream(EXEC_START, {
    claim: CLAIM,
    execId: "e",
    command: `while [ ! -e ${gate} ]; do sleep 0.01; done; echo end`,
  });
  const reader = first[Symbol.asyncIterator]();
  await reader.next();
  const second = there.plane.stream(EXEC_ATTACH, { claim: CLAIM, execId: "e", nextSeq: 2 });
  await expect(reader.next()).rejects.toMatchObject({ code: "aborted", reason: "REPLACED" });
  await run(there.plane, { command: `touch ${gate}` });
  const seqs: number[] = [];
  for await (const item of second) seqs.push(item.seq);
  expect(seqs).toEqual([2, 3]);
  expect(existsSync(gate)).toBe(true);
});
