import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseLimits } from "../../src/core/limits.ts";
import { type LocalEngine, openLocalEngine } from "../../src/sandbox/engine.ts";
import { requireHost } from "../helpers/host.ts";
import { paced, TEST_TIMEOUT_MS } from "./pace.ts";
import { finish, makeDirs, readUntil } from "./test-engine.ts";

const host = requireHost({ linux: true });

host.describe("the engine without a sandbox", () => {
  setDefaultTimeout(TEST_TIMEOUT_MS);
  const dirs = makeDirs();
  let engine: LocalEngine;
  beforeAll(async () => {
    engine = await openLocalEngine({ runDir: dirs.run, dataDir: dirs.data, mode: "off" });
  });
  afterAll(async () => {
    await engine.close();
    expect(readdirSync(dirs.run)).toEqual([]);
    rmSync(dirs.top, { recursive: true });
  });
  const open = async (limits = {}) => engine.open(await engine.reserve(parseLimits(limits)));
  const ENV = { PATH: "/usr/bin:/bin" };

  test("says that nothing protects", async () => {
    const lease = await open();
    expect(engine.mode).toBe("off");
    for (const layers of [engine.layers, lease.layers]) {
      expect(layers).toMatchObject({ root: false, cgroup: false, namespaces: false });
    }
    expect(lease.missing).toContain("root");
    expect(lease.missing).toContain("seccomp");
    await lease.release();
  });

  test("runs a job's program: code, input, output, exit code, artifacts", async () => {
    const language = await engine.languages.resolve("python");
    const lease = await open();
    await lease.putFile(
      `/workspace/${language.fileName}`,
      Buffer.from(
        "import sys, os\nos.mkdir('out')\nopen('out/a', 'w').write('art')\nprint(input(), sys.argv[1])\nsys.exit(3)\n",
      ),
    );
    const exec = await lease.exec({
      executable: language.executable,
      arguments: language.command(["arg"]),
      directory: "/workspace",
      variables: { ...ENV, ...language.variables },
      stdin: Buffer.from("in\n"),
    });
    const ran = await finish(exec);
    expect(ran.stdout).toBe("in arg\n");
    expect(ran.outcome).toMatchObject({ exitCode: 3, reason: "exit" });
    const [artifact] = await lease.artifacts();
    expect(artifact?.path).toBe("a");
    await lease.release();
  });

  test("holds to wall time and output, and ends the process group", async () => {
    const lease = await open({ wall_seconds: paced(1), output_kb: 1 });
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "sleep 1000 & echo $!; head -c 100000 /dev/zero; sleep 1000"],
      variables: ENV,
    });
    const ran = await finish(exec);
    expect(ran.outcome).toMatchObject({ reason: "wall_limit", signal: "SIGKILL" });
    expect(ran.stdout.length).toBe(1024);
    expect(ran.notices.map(({ type }) => type).sort()).toEqual(["limit", "limit", "truncated"]);
    const child = Number(ran.stdout.split("\n")[0]);
    expect(readFileSyncOrNull(`/proc/${child}/stat`)?.split(" ")[2] ?? "Z").toBe("Z");
    await lease.release();
  });

  test("cancels with a grace, refuses what is not there, transfers files", async () => {
    const lease = await open();
    const exec = await lease.exec({
      executable: "sh",
      arguments: ["-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"],
      variables: ENV,
    });
    await readUntil(exec, "ready");
    exec.kill("user", { graceMs: 20_000 });
    expect(await exec.outcome).toMatchObject({ reason: "user", exitCode: 5 });
    expect(
      await lease
        .exec({ executable: "no-such-program", arguments: [], variables: ENV })
        .catch((error: unknown) => error),
    ).toMatchObject({ code: "not_found", reason: "PROGRAM_NOT_FOUND" });
    const source = join(dirs.top, "tree");
    mkdirSync(source);
    writeFileSync(join(source, "a"), "bytes");
    await lease.upload(source, "/workspace/tree");
    await lease.download("/workspace/tree", join(dirs.top, "back"));
    expect(readFileSync(join(dirs.top, "back", "a"), "utf8")).toBe("bytes");
    await lease.release();
    await lease.release();
  });
});

function readFileSyncOrNull(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
