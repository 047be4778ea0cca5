import { afterAll, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { accessSync, constants, mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { ENV, finish, fixture, PYTHON, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

/** Where a host keeps what is nobody else's: those where this user may plant something. */
const PLACES = [
  "/root",
  "/home",
  "/etc",
  "/var",
  "/opt",
  "/srv",
  "/tmp",
  "/run",
  "/run/shm",
  "/mnt",
];

interface Canary {
  readonly path: string;
  readonly word: string;
}

function isWritable(place: string): boolean {
  try {
    accessSync(place, constants.W_OK);
    return statSync(place).isDirectory();
  } catch {
    // Not there, or not for us.
    return false;
  }
}

function plant(): Canary[] {
  return [...PLACES, tmpdir()].filter(isWritable).map((place) => {
    const word = randomBytes(16).toString("hex");
    const path = join(place, `cprg-canary-${word}`);
    writeFileSync(path, `secret ${word}\n`, { mode: 0o666 });
    return { path, word };
  });
}

host.describe("files of the host", () => {
  const bench = useEngine();
  const canaries = plant();
  afterAll(() => {
    for (const { path } of canaries) rmSync(path, { force: true });
  });

  const search = async (words: readonly string[], paths: readonly string[]) => {
    const lease = await bench.open();
    await lease.putFile("/home/agent/find.py", Buffer.from(fixture("find-canaries.py")));
    await lease.putFile("/workspace/mine", Buffer.from(`inside ${words.at(-1)}`));
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: ["/home/agent/find.py"],
      variables: ENV,
      stdin: Buffer.from(`${words.join(" ")}\n${paths.join(" ")}\n`),
    });
    const ran = await finish(exec);
    await lease.release();
    expect(ran.stderr).toBe("");
    expect(ran.outcome.reason).toBe("exit");
    return ran.stdout.trim().split("\n");
  };

  test("are nowhere to be found, by name, by content or by path", async () => {
    expect(canaries.length).toBeGreaterThanOrEqual(process.getuid?.() === 0 ? 8 : 2);
    const words = canaries.map(({ word }) => word);
    const inside = randomBytes(16).toString("hex");
    const found = await search(
      [...words, inside],
      canaries.map(({ path }) => path),
    );
    // The search itself works: it finds the one file that is inside.
    const last = found.pop();
    expect(last).toMatch(/^looked \d{3,}$/);
    expect(found).toEqual(["content '/workspace/mine'"]);
  });

  test("are found by the same search where they are bound on purpose", async () => {
    const { openTestEngine, makeDirs } = await import("./test-engine.ts");
    const { parseLimits } = await import("../../src/core/limits.ts");
    const dirs = makeDirs();
    const source = join(process.getuid?.() === 0 ? "/var/lib" : tmpdir(), "cprg-test-bind");
    mkdirSync(source, { mode: 0o755 });
    writeFileSync(join(source, "given"), "given word4711\n");
    const engine = await openTestEngine(dirs, { binds: [{ source, target: "/opt/given" }] });
    try {
      const lease = await engine.open(await engine.reserve(parseLimits(undefined)));
      const read = await lease.invoke({
        executable: "sh",
        arguments: ["-c", "cat /opt/given/given; echo no > /opt/given/given || echo refused"],
      });
      expect(read.stdout).toBe("given word4711\nrefused\n");
      await lease.release();
    } finally {
      await engine.close();
      rmSync(source, { recursive: true });
      rmSync(dirs.top, { recursive: true });
    }
  });
});
