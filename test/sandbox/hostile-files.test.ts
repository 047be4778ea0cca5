// What a hostile program leaves for those who take files out of its sandbox.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, lstatSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecLease } from "../../src/provider/contract.ts";
import { listArtifacts } from "../../src/sandbox/artifacts.ts";
import { type Native, NativeError } from "../../src/sandbox/native.ts";
import { requireHost } from "../helpers/host.ts";
import { PYTHON, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

/** 80 chains of 15 long names, 100 files at the end of each: every path is thousands of bytes. */
const DEEP_TREE = `
import os
for chain in range(80):
    os.chdir("/workspace/out")
    for level in range(15):
        name = f"{chain}-{level}-".ljust(250, "x")
        os.mkdir(name)
        os.chdir(name)
    for file in range(100):
        open(f"{file}", "w").close()
`;

host.describe("hostile files", () => {
  const bench = useEngine();
  let top = "";
  beforeAll(() => {
    top = mkdtempSync(join(tmpdir(), "cprg-test-hostile-"));
  });
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  const sh = async (lease: ExecLease, script: string): Promise<void> => {
    const { status, stderr } = await lease.invoke({ executable: "sh", arguments: ["-c", script] });
    expect([script, status, stderr]).toEqual([script, 0, ""]);
  };
  const python = async (lease: ExecLease, code: string): Promise<void> => {
    const result = await lease.invoke({ executable: PYTHON, arguments: ["-c", code] });
    expect([result.status, result.stderr]).toEqual([0, ""]);
  };
  const failed = (promise: Promise<unknown>): Promise<unknown> =>
    promise.then(
      () => "no failure",
      (error: unknown) => error,
    );

  test("links that lead out only through one another are refused", async () => {
    const lease = await bench.open();
    const trees = [
      "mkdir -p t/a/b/c; ln -s ../../.. t/a/b/c/M; ln -s a/b/c/M/../../../etc/shadow t/y",
      "mkdir -p t/a/b; ln -s a/b t/L; ln -s L/../../../x t/y",
      "mkdir -p t/a; ln -s ./a/./../../x t/y",
      "mkdir -p t/a; ln -s ../.. t/a/y",
      "ln -s x t",
    ];
    for (const tree of trees) {
      await sh(lease, `rm -rf t; ${tree}`);
      const target = join(top, "out");
      expect([tree, await failed(lease.download("t", target))]).toMatchObject([
        tree,
        { code: "failed_precondition", reason: "LINK_ESCAPES" },
      ]);
      expect(readdirSync(top)).toEqual([]);
    }
  });

  test("links that stay inside, however they climb, come along", async () => {
    const lease = await bench.open();
    await sh(
      lease,
      "mkdir -p t/a/b; echo x > t/x; ln -s ../../x t/a/b/up; ln -s .././b t/a/same; ln -s ../.. t/a/b/top; ln -s a/b/top/x t/chain",
    );
    const target = join(top, "inside");
    await lease.download("t", target);
    expect(readlinkSync(join(target, "a", "b", "up"))).toBe("../../x");
    expect(await Bun.file(join(target, "chain")).text()).toBe("x\n");
    rmSync(target, { recursive: true });
  });

  test("a file that is longer than the disk of its sandbox is not written out", async () => {
    const lease = await bench.open({ disk_mb: 1, file_mb: 4096 });
    await sh(lease, "mkdir out; truncate -s 1G out/hole");
    const target = join(top, "hole");
    for (const attempt of [() => lease.artifacts(), () => lease.download("out", target)]) {
      expect(await failed(attempt())).toMatchObject({
        code: "resource_exhausted",
        reason: "OUT_BYTES",
        hint: expect.stringContaining("disk_mb"),
      });
    }
    // One file under many names is as long as all of them.
    await sh(lease, "cd out; rm hole; truncate -s 1M 0; for i in $(seq 1 20); do ln 0 $i; done");
    expect(await failed(lease.artifacts())).toMatchObject({ reason: "OUT_BYTES" });
    expect(await failed(lease.download("out", target))).toMatchObject({ reason: "OUT_BYTES" });
    expect(existsSync(target)).toBe(false);
    // Within it, a hole is a file like any other.
    await sh(lease, "rm out/*; truncate -s 2M out/hole");
    expect((await lease.artifacts()).map(({ size }) => size)).toEqual([2 << 20]);
    await lease.download("out", target);
    expect(lstatSync(join(target, "hole")).size).toBe(2 << 20);
    rmSync(target, { recursive: true });
  });

  test("an artifact whose name is no text is an error that shows it", async () => {
    const lease = await bench.open();
    await python(lease, "import os; os.mkdir('out'); open(b'out/bad\\xff', 'w').close()");
    expect(await failed(lease.artifacts())).toMatchObject({
      reason: "ARTIFACTS",
      message: expect.stringContaining("bad\\\\xff"),
    });
  });

  test("what cannot be opened is an error, not an artifact less", async () => {
    const lease = await bench.open();
    // Two components of a path that is too long for the kernel.
    await python(
      lease,
      "import os\nos.mkdir('out'); os.chdir('out')\nfor _ in range(18):\n  os.mkdir('x' * 250); os.chdir('x' * 250)\nopen('deep', 'w').close()\n",
    );
    expect(await failed(lease.artifacts())).toMatchObject({
      reason: "ARTIFACTS",
      message: expect.stringContaining("ENAMETOOLONG"),
    });
  });

  test("a host that is short of descriptors says so, and may be asked again", async () => {
    const short = {
      openBeneath: () => {
        throw new NativeError("open", 24);
      },
    } as unknown as Native;
    expect(await failed(listArtifacts(short, 0))).toMatchObject({
      code: "resource_exhausted",
      retryable: true,
      message: expect.stringContaining("EMFILE"),
    });
  });

  test("a huge tree does not hold up the server", async () => {
    const lease = await bench.open({ inodes: 20_000, disk_mb: 256, mem_mb: 512 });
    await sh(lease, "mkdir out");
    await python(lease, DEEP_TREE);
    for (const take of [() => lease.artifacts(), () => lease.download("out", join(top, "huge"))]) {
      let turns = 0;
      const timer = setInterval(() => {
        turns += 1;
      }, 1);
      await take();
      clearInterval(timer);
      expect(turns).toBeGreaterThan(10);
    }
    rmSync(join(top, "huge"), { recursive: true });
  });

  test("paths that are too long together are not remembered", async () => {
    const lease = await bench.open({ inodes: 20_000, disk_mb: 256, mem_mb: 512 });
    await python(
      lease,
      "import os\nfor _ in range(15):\n  os.mkdir('x' * 250); os.chdir('x' * 250)\nfor file in range(18000): open(f'{file}', 'w').close()\n",
    );
    const target = join(top, "paths");
    expect(await failed(lease.download("/workspace", target))).toMatchObject({
      code: "resource_exhausted",
      reason: "OUT_PATHS",
    });
    expect(existsSync(target)).toBe(false);
  });

  test("a source that is no file, tree or link is named, wherever it is", async () => {
    const lease = await bench.open();
    const source = join(top, "source");
    expect(Bun.spawnSync(["sh", "-c", `mkdir ${source} && mkfifo ${source}/fifo`]).exitCode).toBe(
      0,
    );
    for (const path of [source, join(source, "fifo"), "/dev/null"]) {
      expect([path, await failed(lease.upload(path, "there"))]).toMatchObject([
        path,
        { code: "invalid_argument", message: expect.stringContaining("not a file, tree or link") },
      ]);
    }
    await sh(lease, "test ! -e there");
    rmSync(source, { recursive: true });
  });
});
