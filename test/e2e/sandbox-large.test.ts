// A large tree into a sandbox and out again: exact, and in constant memory of the server.
// CPRG_TEST_LONG=1 makes it 1 GiB.

import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  chmodSync,
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, type Home, makeHome, start } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { until } from "./until.ts";

const host = requireHost({ root: true, cgroup: true });
const MIB = 1024 * 1024;
const isLong = process.env["CPRG_TEST_LONG"] === "1";
const TREE_MIB = isLong ? 1024 : 64;
const FILE_MIB = isLong ? 64 : 8;
const SMALL_FILES = isLong ? 2000 : 200;
/** What the server may take over its baseline, whatever the size. */
const RSS_MOST_MIB = 64;
const LIMITS = isLong
  ? ["mem_mb=3072", "disk_mb=1536", "file_mb=256", "wall_seconds=300", "cpu_seconds=300"]
  : ["mem_mb=512", "disk_mb=160", "file_mb=64"];

/** Files that differ in every block, small ones, modes and links. */
function makeTree(top: string): void {
  const block = Buffer.allocUnsafe(MIB);
  for (let at = 0, seed = 1; at < MIB; at += 4) {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    block.writeUInt32LE(seed, at);
  }
  for (let file = 0; file < TREE_MIB / FILE_MIB; file += 1) {
    const directory = join(top, `d${file % 4}`);
    mkdirSync(directory, { recursive: true });
    const fd = openSync(join(directory, `f${file}`), "w");
    for (let mib = 0; mib < FILE_MIB; mib += 1) {
      for (let at = 0; at < MIB; at += 4096) block.writeUInt32LE(file * 65_536 + mib, at);
      writeSync(fd, block);
    }
    closeSync(fd);
    chmodSync(join(directory, `f${file}`), 0o600 + (file % 64));
    symlinkSync(`f${file}`, join(directory, `l${file}`));
  }
  mkdirSync(join(top, "small"));
  for (let file = 0; file < SMALL_FILES; file += 1) {
    writeFileSync(join(top, "small", `${file}`), `${file}`);
  }
  chmodSync(join(top, "small"), 0o710);
}

function describeTree(top: string): readonly string[] {
  return readdirSync(top, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const path = join(top, name);
      const status = lstatSync(path);
      const mode = (status.mode & 0o777).toString(8);
      if (status.isSymbolicLink()) return `${name} -> ${readlinkSync(path)}`;
      if (status.isDirectory()) return `${name}/ ${mode}`;
      return `${name} ${mode} ${status.size} ${Bun.hash(readFileSync(path))}`;
    });
}

/** A field of /proc/PID/status, in MiB. */
function memoryMib(pid: number, field: "VmRSS" | "VmHWM"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(status)?.[1]) / 1024;
}

host.describe("a large tree", () => {
  let home: Home;
  let server: Serving;
  beforeAll(async () => {
    home = makeHome();
    server = await serve(home);
    makeTree(join(home.path, "tree"));
  }, 120_000);
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    home[Symbol.dispose]();
  });
  const cprg = (...words: string[]) =>
    call(["sandbox", ...words], {
      env: { ...home.env, CPRG_SERVER: server.url, CPRG_KEY: server.key },
      cwd: home.path,
    });
  const create = async (): Promise<string> => {
    const flags = LIMITS.flatMap((limit) => ["--limit", limit]);
    const { out, err } = await cprg("create", ...flags);
    expect(err).toBe("");
    return out.trim();
  };

  test(
    "goes in and out exactly while the server stays small",
    async () => {
      const id = await create();
      const { pid } = server.process;
      // Both ways once, small: what the runtime loads and keeps is no part of what a size costs.
      await cprg("cp", "tree/small", `${id}:warm`);
      await cprg("cp", `${id}:warm`, "warm");
      const before = memoryMib(pid, "VmRSS");
      writeFileSync(`/proc/${pid}/clear_refs`, "5");
      const begin = performance.now();
      expect(await cprg("cp", "tree", `${id}:tree`)).toEqual({ code: 0, out: "", err: "" });
      const inMs = performance.now() - begin;
      const afterIn = memoryMib(pid, "VmHWM");
      expect(await cprg("cp", `${id}:tree`, "back")).toEqual({ code: 0, out: "", err: "" });
      const outMs = performance.now() - begin - inMs;
      const most = memoryMib(pid, "VmHWM");
      const rate = (ms: number): string => `${((TREE_MIB * 1000) / ms).toFixed(0)} MiB/s`;
      console.log(
        `${TREE_MIB} MiB: in ${rate(inMs)}, out ${rate(outMs)}; server RSS ${before.toFixed(0)} MiB, ` +
          `peak in ${afterIn.toFixed(0)}, peak ${most.toFixed(0)} MiB`,
      );
      expect(describeTree(join(home.path, "back"))).toEqual(describeTree(join(home.path, "tree")));
      expect(most - before).toBeLessThanOrEqual(RSS_MOST_MIB);
      rmSync(join(home.path, "back"), { recursive: true });
      await cprg("rm", id);
    },
    isLong ? 600_000 : 120_000,
  );

  test("that is cut in the middle leaves nothing", async () => {
    const id = await create();
    const flags = { env: { ...home.env, CPRG_SERVER: server.url, CPRG_KEY: server.key } };
    const copy = start(["sandbox", "cp", join(home.path, "tree"), `${id}:tree`], flags);
    const used = async (): Promise<number> => {
      const { out } = await cprg("exec", id, "--", "du", "-sm", "/workspace");
      return Number.parseInt(out, 10);
    };
    await until(async () => ((await used()) >= 2 ? true : null), { what: "something is there" });
    copy.kill("SIGKILL");
    await copy.exited;
    await until(async () => ((await used()) === 0 ? true : null), { what: "nothing is there" });
    const { out } = await cprg("exec", id, "--", "ls", "-A", "/workspace");
    expect(out).toBe("");
    await cprg("rm", id);
  }, 120_000);
});
