// `cprg run` of the compiled binary in real sandboxes.

import { expect } from "bun:test";
import { mkdtempSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { pidsWith } from "../helpers/processes.ts";
import { call, cprgPath, makeHome, readText, start } from "./cprg.ts";

const { test } = requireHost({ root: true, cgroup: true });

/** A word on the program's command line that nobody else has. */
function marker(): string {
  return `e2e-${crypto.randomUUID()}`;
}

test("run -c prints what the program prints", async () => {
  using home = makeHome();
  expect(await call(["run", "-c", "print(6*7)"], home)).toEqual({ code: 0, out: "42\n", err: "" });
});

test("run ends with the program's exit code, or what ended it", async () => {
  using home = makeHome();
  const cases: [number, string, string[]][] = [
    [7, "raise SystemExit(7)", []],
    [137, "import os; os._exit(137)", []],
    [139, "import os; os.kill(os.getpid(), 11)", []],
    [124, "while True: pass", ["--timeout", "300ms"]],
    [124, "while True: pass", ["--limit", "cpu_seconds=0.3"]],
    [137, "x = b'x' * (512 << 20)", ["--mem", "64"]],
  ];
  for (const [code, program, flags] of cases) {
    const ended = await call(["run", ...flags, "-c", program], home);
    expect({ program, code: ended.code, out: ended.out }).toEqual({ program, code, out: "" });
  }
});

test("run says why it ended a program", async () => {
  using home = makeHome();
  const timedOut = await call(["run", "--timeout", "200ms", "-c", "while True: pass"], home);
  expect(timedOut.err).toContain("timed out after 0.2 s (limit wall_seconds)");
  const oom = await call(["run", "--mem", "64", "-c", "x = b'x' * (512 << 20)"], home);
  expect(oom.err).toContain("out of memory at 64 MiB (limit mem_mb)");
  const clamped = await call(["run", "--limit", "wall_seconds=1e3", "-c", "1"], home);
  expect(clamped.code).toBe(2);
  const high = await call(["run", "--timeout", "1000", "-c", "1"], home);
  expect(high).toMatchObject({ code: 0 });
  expect(high.err).toContain("limit wall_seconds is 300, its ceiling, not 1000");
});

test("run ends with 125 when the program cannot be started, with 2 for an unknown language", async () => {
  using home = makeHome();
  const unknown = await call(["run", "--lang", "cobol", "-c", "1"], home);
  expect(unknown).toMatchObject({ code: 2, out: "" });
  expect(unknown.err).toContain('Cannot use language "cobol": unknown\n');
  expect(unknown.err).toContain("hint: One of python, ");
  expect(unknown.err).not.toContain("argv");
  const env = { ...home.env, CPRG_PYTHON: "/nonexistent/python3" };
  const noInterpreter = await call(["run", "-c", "print(1)"], { env });
  expect(noInterpreter).toMatchObject({ code: 125, out: "" });
  expect(noInterpreter.err).toContain("python");
  const noSetUp = await call(["run", "-c", "1"], { env: { ...home.env, CPRG_RUN_DIR: "/proc/x" } });
  expect(noSetUp).toMatchObject({ code: 125, out: "" });
  expect(noSetUp.err).toContain("hint:");
});

test("run takes a script, a pipe, arguments, input, files and variables", async () => {
  using home = makeHome();
  const script = join(home.path, "script.py");
  const input = join(home.path, "input");
  writeFileSync(
    script,
    `import os, sys
print(sys.argv[1:], os.environ["GREETING"], os.environ.get("CPRG_DATA_DIR"))
print(open("data/a.txt").read(), sys.stdin.read())
`,
  );
  writeFileSync(input, "file content");
  const words = ["--file", `${input}=data/a.txt`, "--env", "GREETING=hi", "--stdin"];
  const out = "['-x', 'a b'] hi None\nfile content typed\n";
  const piped = await call(["run", ...words, "-", script, "--", "-x", "a b"], {
    ...home,
    stdin: "typed",
  });
  expect(piped).toEqual({ code: 0, out, err: "" });
  const fromPipe = await call(["run"], { ...home, stdin: "print('from a pipe')" });
  expect(fromPipe).toEqual({ code: 0, out: "from a pipe\n", err: "" });
  const shell = await call(["run", "-"], { ...home, stdin: "#!/bin/bash\necho $0 $BASH_VERSION" });
  expect(shell.code).toBe(0);
});

test("run hands on both streams byte for byte, however slow the reader", async () => {
  using home = makeHome();
  const program = `import sys
data = bytes(range(256)) * 8192
sys.stdout.buffer.write(data); sys.stdout.flush()
sys.stderr.buffer.write(data[::-1])`;
  const child = start(["run", "--limit", "output_kb=8192", "-c", program], home);
  await child.stdin.end();
  const [out, err] = await Promise.all([child.stdout.bytes(), child.stderr.bytes()]);
  const data = Buffer.concat(
    Array(8192).fill(Buffer.from(Array.from({ length: 256 }, (_, i) => i))),
  );
  expect(await child.exited).toBe(0);
  expect(Buffer.compare(out, data)).toBe(0);
  expect(Buffer.compare(err, data.reverse())).toBe(0);
});

test("run prints while the program runs, and Ctrl-C ends it and all it started", async () => {
  using home = makeHome();
  const mark = marker();
  const program = "import time, os; os.fork(); print('ready', flush=True); time.sleep(60)";
  const child = start(["run", "-c", program, "--", mark], home);
  await readText(child.stdout).until(/ready[\s\S]*ready/);
  expect(pidsWith(`\0${mark}`).length).toBeGreaterThanOrEqual(2);
  child.kill("SIGINT");
  expect(await child.exited).toBe(130);
  expect(pidsWith(mark)).toEqual([]);
});

test("a second Ctrl-C does not wait for a program that ignores the first; SIGTERM is 143", async () => {
  using home = makeHome();
  const mark = marker();
  const program = `import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("ignored", flush=True))
print("ready", flush=True)
while True: time.sleep(1)`;
  const child = start(["run", "-c", program, "--", mark], home);
  const out = readText(child.stdout);
  await out.until(/ready\n/);
  child.kill("SIGTERM");
  await out.until(/ignored\n/);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(143);
  expect(pidsWith(mark)).toEqual([]);
});

test("a closed standard output ends the run with 141", async () => {
  using home = makeHome();
  const mark = marker();
  const words = ["run", "-c", "while True: print('x' * 1000, flush=True)", "--", mark];
  const child = start(words, home);
  const reader = child.stdout.getReader();
  await reader.read();
  await reader.cancel();
  expect(await child.exited).toBe(141);
  expect(pidsWith(mark)).toEqual([]);
});

test("a standard output that was closed from the start ends like one that is closed later", async () => {
  using home = makeHome();
  const mark = marker();
  const shell = ["/bin/bash", "-c", 'exec "$0" "$@" >&-'];
  const program = "while True: print('x' * 1000, flush=True)";
  const endless = await call(["run", "-c", program, "--", mark], { ...home, shell });
  expect(endless).toEqual({ code: 141, out: "", err: "" });
  expect(pidsWith(mark)).toEqual([]);
  expect(await call(["version"], { ...home, shell })).toEqual({ code: 141, out: "", err: "" });
  // Nothing is lost where nothing is written.
  expect(await call(["run", "-c", "pass"], { ...home, shell })).toMatchObject({ code: 0 });
});

test("run works where the working directory was removed, and names what is missing there", async () => {
  using home = makeHome();
  const script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"';
  const options = { ...home, cwd: home.path, shell: ["/bin/sh", "-c", script] };
  expect(await call(["run", "-c", "print(6*7)"], options)).toMatchObject({ code: 0, out: "42\n" });
  const missing = await call(["run", "script.py"], options);
  expect(missing).toMatchObject({ code: 2, out: "" });
  expect(missing.err).toContain('Cannot read "script.py": no such file');
});

test("run --json prints the result and no output beside it", async () => {
  using home = makeHome();
  const program = "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)";
  const { code, out, err } = await call(["run", "--json", "-c", program], home);
  expect({ code, err }).toEqual({ code: 3, err: "" });
  expect(JSON.parse(out)).toMatchObject({
    status: "failed",
    reason: "exit",
    exit_code: 3,
    stdout: "out\n",
    stderr: "err",
    truncated: false,
  });
});

test("run --save writes a log that verify accepts, and refuses with one byte changed", async () => {
  using home = makeHome();
  const log = join(home.path, "run.ndjson");
  expect((await call(["run", "--save", log, "-c", "print('kept')"], home)).code).toBe(0);
  const good = await call(["verify", log], home);
  expect(good).toMatchObject({ code: 0, err: "" });
  expect(good.out).toContain("verified: job:");

  const bytes = readFileSync(log);
  const at = bytes.indexOf("kept");
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(log, bytes);
  const bad = await call(["verify", log], home);
  expect(bad).toMatchObject({ code: 1, out: "" });
  expect(bad.err).toMatch(/refused: .*line \d+/);
});

test("run --out copies what the program leaves in out, and nothing that a link points to", async () => {
  using home = makeHome();
  const program = `import os
os.makedirs("out/sub", exist_ok=True)
open("out/sub/a.bin", "wb").write(bytes([0, 255]))
os.symlink("/etc/passwd", "out/link")`;
  const directory = join(home.path, "results");
  const ended = await call(["run", "--out", directory, "-c", program], home);
  expect(ended).toEqual({ code: 0, out: "", err: "" });
  const found = [...new Bun.Glob("**").scanSync({ cwd: directory, onlyFiles: true })];
  expect(found).toEqual(["sub/a.bin"]);
  expect(readFileSync(join(directory, "sub/a.bin"))).toEqual(Buffer.from([0, 255]));
});

test("run refuses places that cannot be written before the program runs", async () => {
  using home = makeHome();
  const cases = [
    ["--save", "/nonexistent/run.ndjson", "ENOENT"],
    ["--save", home.path, "EISDIR"],
    ["--out", "/proc/out", "ENOENT"],
    ["--out", "/dev/null", "EEXIST"],
  ] as const;
  for (const [flag, place, why] of cases) {
    const ended = await call(["run", flag, place, "-c", "print('ran')"], home);
    expect(ended).toMatchObject({ code: 2, out: "" });
    expect(ended.err).toContain(`Cannot write "${place}": ${why}`);
  }
});

test("run names an artifact that the disk has no room for, and leaves no half of it", async () => {
  using home = makeHome();
  const directory = join(home.path, "results");
  const script = `mkdir "${directory}" && mount -t tmpfs -o size=64k tmpfs "${directory}" || exit 99
"$0" "$@"; code=$?; ls "${directory}"; exit $code`;
  const program = "import os; os.mkdir('out'); open('out/large', 'wb').write(bytes(1 << 20))";
  const shell = ["unshare", "--mount", "/bin/sh", "-c", script];
  const ended = await call(["run", "--out", directory, "-c", program], { ...home, shell });
  expect(ended).toMatchObject({ code: 1, out: "" });
  expect(ended.err).toContain(`Cannot write "${join(directory, "large")}": ENOSPC`);
});

test("run with a server that is not there ends with 4", async () => {
  using home = makeHome();
  const ended = await call(["run", "--server", "http://127.0.0.1:1", "-c", "1"], home);
  expect(ended).toMatchObject({ code: 4, out: "" });
});

test("run ends with 1 when its output cannot be written", async () => {
  using home = makeHome();
  const words = ["run", "-c", "while True: print('x' * 1000)"];
  const child = Bun.spawn([cprgPath(), ...words], {
    env: home.env,
    stdout: Bun.file("/dev/full"),
    stderr: "pipe",
  });
  expect(await child.stderr.text()).toContain("Cannot write output: ENOSPC");
  expect(await child.exited).toBe(1);
});

test("run --sandbox off says so, and runs all the same", async () => {
  using home = makeHome();
  const ended = await call(["run", "--sandbox", "off", "-c", "print(6*7)"], home);
  expect(ended).toMatchObject({ code: 0, out: "42\n" });
  expect(ended.err).toContain("the sandbox is off");
  const env = { ...home.env, CPRG_ENV: "production" };
  const refused = await call(["run", "--sandbox", "off", "-c", "print(6*7)"], { env });
  expect(refused).toMatchObject({ code: 125, out: "" });
});

requireHost({ root: true, cgroup: "v1" }).test(
  "run ends where the host gives it few threads, and says so",
  async () => {
    using home = makeHome();
    const group = mkdtempSync("/sys/fs/cgroup/pids/cprg-e2e-");
    using groups = new DisposableStack();
    groups.defer(() => rmdirSync(group));
    const enter = `echo $$ > ${group}/cgroup.procs && exec "$0" "$@"`;
    const words = ["run", "--limit", "pids=1", "-c", "print(6*7)"];
    const bounded = ["timeout", "-k", "1", "30", "/bin/sh", "-c"];
    // Which thread is the one too many differs from run to run.
    for (const most of [5, 5, 6, 6, 7, 7, 8, 9, 12]) {
      writeFileSync(`${group}/pids.max`, `${most}`);
      const { code, err } = await call(words, { ...home, shell: [...bounded, enter] });
      // The runtime itself gives up where one of its own threads is missing.
      const isSaid = /at its limit of processes|Bun v\d/.test(err);
      expect({ most, err, isUnderstood: code !== 124 && (code === 0 || isSaid) }).toEqual({
        most,
        err,
        isUnderstood: true,
      });
    }
  },
);
