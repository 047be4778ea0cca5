import { ptr } from "bun:ffi";
import { afterAll, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { capabilityMask, capabilityNames } from "../../src/sandbox/capability-names.ts";
import { requireHost } from "../helpers/host.ts";
import { childEnv, native, removeTemporaryDirectories } from "./native.ts";

const { test } = requireHost({ root: true, programs: ["setpriv"] });
afterAll(removeTemporaryDirectories);

const { EINVAL, EPERM, E2BIG } = constants.errno;
const own = BigInt(
  `0x${/^CapBnd:\s+(\w+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]}`,
);

interface Report {
  readonly result?: number;
  readonly self?: string;
  readonly threads: readonly string[];
  readonly isSamePid?: boolean;
  readonly words?: readonly string[];
  readonly file?: string;
}

/** Runs reduce-self.ts, with a bounding set of its own where one is given. */
function reduce(words: readonly string[], bounding?: string): Report {
  const shell = bounding === undefined ? [] : ["setpriv", "--bounding-set", bounding];
  const script = join(import.meta.dir, "reduce-self.ts");
  const child = Bun.spawnSync([...shell, process.execPath, script, ...words], {
    env: childEnv,
  });
  expect(child.stderr.toString()).toBe("");
  return JSON.parse(child.stdout.toString()) as Report;
}

function sets(mask: bigint, noNewPrivs = 1): string {
  const held = mask.toString(16).padStart(16, "0");
  const none = "0".repeat(16);
  return `CapInh,${none} CapPrm,${held} CapEff,${held} CapBnd,${held} CapAmb,${none} NoNewPrivs,${noNewPrivs}`;
}

const SETUID = capabilityMask(["SETUID"]);

test("cprg_reduce() cuts all five sets of its thread, and of no other", () => {
  const { result, self, threads } = reduce(["keep", String(SETUID)]);
  expect({ result, self }).toEqual({ result: 0, self: sets(SETUID) });
  expect(threads.filter((thread) => thread === sets(SETUID))).toHaveLength(1);
  expect(threads.length).toBeGreaterThan(1);
  expect(threads.filter((thread) => thread !== sets(SETUID))).toContain(sets(own, 0));
});

test("cprg_reduce() gives nothing that was not there", () => {
  const keep = capabilityMask(["SETUID", "CHOWN"]);
  const { result, self } = reduce(["keep", String(keep)], "-all,+setuid,+setpcap,+kill");
  expect({ result, self }).toEqual({ result: 0, self: sets(SETUID) });
});

test("cprg_reduce() without CAP_SETPCAP is refused, unless there is nothing to cut", () => {
  expect(reduce(["keep", String(SETUID)], "-all,+setuid,+kill").result).toBe(-EPERM);
  expect(reduce(["keep", String(SETUID)], "-all,+setuid")).toMatchObject({
    result: 0,
    self: sets(SETUID),
  });
});

test("cprg_restart() makes every thread one of what was kept, and hands on what it is told to", () => {
  const words = ["restart", String(SETUID)];
  const report = reduce(words);
  expect(report).toMatchObject({ isSamePid: true, words, file: "/etc/passwd" });
  expect(report.threads.length).toBeGreaterThan(1);
  expect(new Set(report.threads)).toEqual(new Set([sets(SETUID)]));
});

test("cprg_restart() refuses what is malformed or too long, and returns", () => {
  const restart = (args: Uint8Array, env: Uint8Array, fds = new Int32Array(1), count = 0): number =>
    native.cprg_restart(ptr(args), args.length, ptr(env), env.length, ptr(fds), count);
  const good = Buffer.from("a\0b\0");
  expect(restart(Buffer.from("a\0b"), good)).toBe(-EINVAL);
  expect(restart(good, Buffer.from("A=1\0B=2"))).toBe(-EINVAL);
  expect(restart(Buffer.alloc(65_537), good)).toBe(-E2BIG);
  expect(restart(good, Buffer.alloc(65_537))).toBe(-E2BIG);
  // Longer than the kernel takes one string: the error is execve's own.
  expect(restart(Buffer.from(`${"x".repeat(200_000)}\0`), good)).toBe(-E2BIG);
  expect(restart(good, good, Int32Array.of(-1), 1)).toBe(-constants.errno.EBADF);
});

test("the names of capabilities are the kernel's", () => {
  const header = readFileSync("/usr/include/linux/capability.h", "utf8");
  const defined = [...header.matchAll(/^#define (CAP_\w+)\s+(\d+)$/gm)];
  expect(defined.length).toBeGreaterThan(37);
  for (const [, name, number] of defined) {
    expect(capabilityNames(1n << BigInt(number ?? ""))).toEqual([name ?? ""]);
  }
});
