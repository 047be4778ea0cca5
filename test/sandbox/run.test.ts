import { describe, expect, test } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { ENV, finish, PYTHON, readUntil, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("a program in a sandbox", () => {
  const bench = useEngine();

  test("prints, reads a file and its input, and exits with its code", async () => {
    const lease = await bench.open();
    await lease.putFile("/workspace/in.txt", Buffer.from("from a file"));
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import sys; print(open('in.txt').read(), sys.stdin.read()); print('e', file=sys.stderr); sys.exit(7)",
      ],
      variables: ENV,
      stdin: Buffer.from("from input"),
    });
    const ran = await finish(exec);
    await lease.release();
    expect(ran.stdout).toBe("from a file from input\n");
    expect(ran.stderr).toBe("e\n");
    expect(ran.outcome).toMatchObject({
      exitCode: 7,
      signal: null,
      reason: "exit",
      killed: 0,
      limitsHit: [],
    });
    expect(ran.outcome.usage?.cpu_ms).toBeGreaterThan(0);
    expect(ran.outcome.usage?.memory_peak_bytes).toBeGreaterThan(1_000_000);
    expect(ran.outcome.durationMs).toBeGreaterThan(0);
  });

  test("output comes while it runs, and input can be written to a running program", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import sys; print('ready', flush=True); sys.stdout.write('got ' + input())",
      ],
      variables: ENV,
      stdin: "pipe",
    });
    const reading = await readUntil(exec, "ready");
    await exec.write(Buffer.from("a line\n"));
    expect((await reading.rest()).trim()).toBe("got a line");
    await exec.closeInput();
    expect((await exec.outcome).exitCode).toBe(0);
    await lease.release();
  });

  test("a program that is not there is an error of its own, and the sandbox stays usable", async () => {
    const lease = await bench.open();
    const start = (executable: string) =>
      lease.exec({ executable, arguments: [], variables: ENV }).then(
        () => null,
        (error: unknown) => error,
      );
    expect(await start("no-such-program")).toMatchObject({
      code: "not_found",
      reason: "PROGRAM_NOT_FOUND",
      setup: { step: "execve", errnoName: "ENOENT" },
      hint: expect.stringContaining("CPRG_BINDS"),
    });
    expect(await start("/etc/passwd")).toMatchObject({ code: "permission_denied" });
    expect(
      await lease
        .exec({ executable: "/bin/true", arguments: [], variables: {}, directory: "/nowhere" })
        .catch((error: unknown) => error),
    ).toMatchObject({ reason: "DIRECTORY", setup: { step: "directory", errnoName: "ENOENT" } });
    expect((await lease.invoke({ executable: "true" })).status).toBe(0);
    await lease.release();
  });

  test("hostile arguments stay arguments, and what cannot be one is refused", async () => {
    const lease = await bench.open();
    const odd = ["", " ", "$(id)", "a\nb", "\\", "`id`", ";id", "-n", "ü\u{1f600}", "*"];
    const { stdout } = await lease.invoke({
      executable: PYTHON,
      arguments: ["-c", "import sys, json; print(json.dumps(sys.argv[1:]))", ...odd],
    });
    expect(JSON.parse(stdout)).toEqual(odd);
    const refused = { code: "invalid_argument" };
    for (const spec of [
      { executable: "a\0b", arguments: [] },
      { executable: "/bin/true", arguments: ["\0"] },
      { executable: "/bin/true", arguments: [], variables: { "A=B": "c" } },
      { executable: "/bin/true", arguments: [], variables: { A: "\0" } },
      { executable: "/bin/true", arguments: new Array<string>(5000).fill("x") },
      { executable: "/bin/true", arguments: ["x".repeat(300_000)] },
    ]) {
      const error = await lease.exec({ variables: {}, ...spec }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject(refused);
    }
    expect((await lease.invoke({ executable: "true" })).status).toBe(0);
    await lease.release();
  });

  test("many programs at once in one sandbox end each with its own code", async () => {
    const lease = await bench.open({ pids: 200 });
    const codes = Array.from({ length: 20 }, (_, index) => index);
    const results = await Promise.all(
      codes.map((code) => lease.invoke({ executable: "sh", arguments: ["-c", `exit ${code}`] })),
    );
    expect(results.map(({ status }) => status)).toEqual(codes);
    await lease.release();
  });

  test("release ends what runs, and is the end", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV });
    await Promise.all([lease.release(), lease.release()]);
    expect(await exec.outcome).toMatchObject({ reason: "shutdown", signal: "SIGKILL" });
    await lease.release();
    const late = await lease
      .exec({ executable: "true", arguments: [], variables: ENV })
      .catch((error: unknown) => error);
    expect(late).toMatchObject({ reason: "SANDBOX_GONE" });
  });
});

describe("an engine that cannot be", () => {
  test("a run directory that cannot be made says what to do", async () => {
    const { openLocalEngine } = await import("../../src/sandbox/engine.ts");
    const error = await openLocalEngine({
      runDir: "/proc/nonexistent",
      dataDir: "/nonexistent",
      mode: "auto",
    }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: "failed_precondition",
      reason: "RUN_DIR",
      hint: expect.stringContaining("CPRG_RUN_DIR"),
    });
  });
});
