import { expect } from "bun:test";
import type { Exec, ExecLease } from "../../src/provider/contract.ts";
import { requireHost } from "../helpers/host.ts";
import { ENV, finish, PYTHON, readUntil, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

const shell = (lease: ExecLease, script: string, size = { columns: 80, rows: 24 }): Promise<Exec> =>
  lease.exec({
    executable: "/bin/bash",
    arguments: ["-c", script],
    variables: { ...ENV, TERM: "xterm" },
    terminal: size,
  });

host.describe("an exec with a terminal", () => {
  const bench = useEngine();

  host.test("has one as its controlling terminal, with the size asked for", async () => {
    const lease = await bench.open();
    const script = "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; ls -ln $(tty)";
    const ran = await finish(await shell(lease, script, { columns: 132, rows: 43 }));
    expect(ran.outcome).toMatchObject({ exitCode: 0, reason: "exit" });
    expect(ran.stderr).toBe("");
    const lines = ran.stdout.split("\r\n");
    expect(lines.slice(0, 3)).toEqual(["/dev/pts/0", "43 132", "all"]);
    expect(lines[3]).toMatch(/^crw--w---- 1 1000 1000 136, 0 /);
  });

  host.test("keeps its status when it fails or is killed", async () => {
    const lease = await bench.open();
    expect((await finish(await shell(lease, "exit 7"))).outcome.exitCode).toBe(7);
    const killed = await finish(await shell(lease, "kill -9 $$"));
    expect(killed.outcome).toMatchObject({ exitCode: null, signal: "SIGKILL" });
  });

  host.test("interrupts the foreground group on Ctrl-C, and the shell goes on", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: "/bin/bash",
      arguments: ["--norc", "-i"],
      variables: { ...ENV, TERM: "xterm", PS1: "$ " },
      terminal: { columns: 80, rows: 24 },
    });
    const output = await readUntil(exec, "$ ");
    await exec.write(Buffer.from("sh -c 'echo rea''dy; exec sleep 100'\n"));
    await output.until("ready\r\n");
    await exec.write(Buffer.from("\x03"));
    await output.until("$ ");
    await exec.write(Buffer.from("echo after $?; sleep 100 &\n"));
    await output.until("after 130\r\n");
    await output.until("$ ");
    await exec.write(Buffer.from("kill %1; wait; exit 5\n"));
    await output.rest();
    expect((await exec.outcome).exitCode).toBe(5);
  });

  host.test("tells a program of a new size", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import os,signal\nsignal.signal(28,lambda *a:(print(os.get_terminal_size()),os._exit(0)))\nprint('ready',flush=True)\nwhile True: signal.pause()",
      ],
      variables: { ...ENV, PYTHONUNBUFFERED: "1" },
      terminal: { columns: 80, rows: 24 },
    });
    const output = await readUntil(exec, "ready\r\n");
    exec.resize({ columns: 101, rows: 37 });
    expect(await output.rest()).toContain("columns=101, lines=37");
    expect((await exec.outcome).exitCode).toBe(0);
    // Its terminal is closed by now, and its number may be another's.
    exec.resize({ columns: 1, rows: 1 });
  });

  host.test("passes UTF-8 both ways and ends on Ctrl-D", async () => {
    const lease = await bench.open();
    const exec = await shell(lease, "stty -echo; echo ready; cat");
    const output = await readUntil(exec, "ready\r\n");
    await exec.write(Buffer.from("grüße 🌍\n"));
    await output.until("grüße 🌍\r\n");
    await exec.closeInput();
    expect(await output.rest()).toBe("");
    expect((await exec.outcome).exitCode).toBe(0);
  });

  host.test("keeps every byte of a program that prints and exits at once", async () => {
    const lease = await bench.open({ output_kb: 4096 });
    const ran = await finish(await shell(lease, "stty -opost; seq 1 200000"));
    const lines = ran.stdout.trimEnd().split("\n");
    expect(lines.length).toBe(200_000);
    expect(lines.at(-1)).toBe("200000");
  });

  host.test("ends with its group although another exec holds the terminal open", async () => {
    const lease = await bench.open();
    const exec = await shell(lease, "tty; read; exit 3");
    const output = await readUntil(exec, "/dev/pts/0");
    const holder = await lease.exec({
      executable: "/bin/bash",
      arguments: ["-c", "exec 3<>/dev/pts/0; echo held; exec sleep 100"],
      variables: ENV,
    });
    const held = await readUntil(holder, "held");
    await exec.write(Buffer.from("\n"));
    expect((await exec.outcome).exitCode).toBe(3);
    await output.rest();
    holder.kill("user");
    await held.rest();
    await holder.outcome;
  });

  host.test("cannot push characters into its terminal", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({
      executable: PYTHON,
      arguments: [
        "-c",
        "import fcntl\ntry: fcntl.ioctl(0, 0x5412, b'x'); print('pushed')\nexcept OSError as e: print(e.errno)",
      ],
      variables: ENV,
      terminal: { columns: 80, rows: 24 },
    });
    expect((await finish(exec)).stdout).toBe("1\r\n");
  });

  host.test("cannot be had by more programs than the sandbox has terminals", async () => {
    const lease = await bench.open();
    const code = [
      "import os",
      "n=0",
      "try:",
      " while n < 200: os.openpty(); n+=1",
      "except OSError: pass",
      "print(n)",
    ].join("\n");
    const exec = await lease.exec({ executable: PYTHON, arguments: ["-c", code], variables: ENV });
    const count = Number((await finish(exec)).stdout);
    expect(count).toBeGreaterThan(8);
    expect(count).toBeLessThanOrEqual(64);
  });
});
