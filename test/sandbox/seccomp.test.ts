// The filter of an exec on the real kernel: what it names, what it refuses, what goes on beside it.

import { expect, test } from "bun:test";
import { outcomeStatus } from "../../src/core/outcome.ts";
import type { ExecLease } from "../../src/provider/contract.ts";
import { seccompSupport } from "../../src/sandbox/seccomp/host-support.ts";
import { parseSeccompPolicy } from "../../src/sandbox/seccomp/policy.ts";
import {
  archOf,
  type SyscallName,
  syscallNumber,
} from "../../src/sandbox/seccomp/syscall-table.ts";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { ENV, finish, PYTHON, type Ran, useEngine } from "./test-engine.ts";

const canNotify = seccompSupport().mode === "notify";
const host = requireHost({
  sandbox: true,
  programs: [PYTHON, ...(canNotify ? [] : ["a kernel that notifies"])],
});
// ioctl_tty(2), ioctl_console(2)
const TIOCSTI = 0x5412n;
const TIOCLINUX = 0x541cn;
const arch = archOf(process.arch) ?? "x86_64";

/** Python that makes one call and prints what it returned, or -errno. */
function calling(name: SyscallName, args = "0"): string {
  return `import ctypes
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(${syscallNumber(name, arch)}, ${args})
print(-ctypes.get_errno() if result == -1 else result)
`;
}

const run = async (lease: ExecLease, code: string, language?: string): Promise<Ran> =>
  finish(
    await lease.exec({
      executable: PYTHON,
      arguments: ["-c", code],
      variables: ENV,
      ...(language === undefined ? {} : { language }),
    }),
  );

/** The violation, in the outcome and once among the notices. */
function expectNamed(ran: Ran, syscall: SyscallName): void {
  const violation = { type: "seccomp_violation", syscall, nr: syscallNumber(syscall, arch), arch };
  expect(ran.outcome).toMatchObject({
    reason: "seccomp_violation",
    exitCode: null,
    signal: "SIGKILL",
    violations: [violation],
  });
  expect(outcomeStatus(ran.outcome)).toBe("failed");
  expect(ran.notices.filter(({ type }) => type === "violation")).toEqual([
    { type: "violation", violation },
  ] as never);
  expect(ran.stdout).toBe("");
}

host.describe("the filter", () => {
  const bench = useEngine();

  test("is a layer in force, and none is missing", async () => {
    expect(bench.engine.layers["seccomp"]).toBe("notify");
    expect(bench.engine.missing).not.toContain("seccomp");
    const { stdout } = await run(await bench.open(), "print(open('/proc/self/status').read())");
    expect(stdout).toContain("Seccomp:\t2\n");
    expect(stdout).toContain("Seccomp_filters:\t1\n");
  });

  test.each<[SyscallName, string]>([
    ["ptrace", "0, 0, 0, 0"],
    ["bpf", "0, 0, 0"],
    ["unshare", "0x10000000"],
    ["mount", "0, 0, 0, 0, 0"],
    ["keyctl", "0, 0"],
    ["io_uring_setup", "8, 0"],
    ["userfaultfd", "0"],
    ["perf_event_open", "0, 0, -1, -1, 0"],
    ["open_by_handle_at", "-1, 0, 0"],
    ["setns", "-1, 0"],
    ["clone", "0x10000011, 0, 0, 0, 0"],
  ])("names %s and ends the program", async (name, args) => {
    expectNamed(await run(await bench.open(), calling(name, args)), name);
  });

  test.each([
    ["AF_INET", 2],
    ["AF_INET6", 10],
    ["AF_NETLINK", 16],
    ["AF_VSOCK", 40],
  ])("refuses a socket of %s", async (_name, family) => {
    const { stdout, outcome } = await run(await bench.open(), calling("socket", `${family}, 1, 0`));
    expect(stdout).toBe("-97\n");
    expect(outcome).toMatchObject({ reason: "exit", exitCode: 0, violations: [] });
  });

  test("has no clone3, and no TIOCSTI and TIOCLINUX however they are written", async () => {
    const lease = await bench.open();
    expect((await run(lease, calling("clone3", "0, 0"))).stdout).toBe("-38\n");
    for (const request of [TIOCSTI, TIOCLINUX]) {
      for (const high of [0n, 0x1_0000_0000n, 0xffff_ffff_0000_0000n]) {
        const typed = calling("ioctl", `0, ctypes.c_ulong(${request | high}), b'x'`);
        expect([request, high, (await run(lease, typed)).stdout]).toEqual([request, high, "-1\n"]);
      }
    }
    // Without the filter this would be ENOTTY (25): standard input is /dev/null.
    expect((await run(lease, calling("ioctl", "0, 0x5413, b'x' * 8"))).stdout).toBe("-25\n");
  });

  const entry = requireHost({ programs: arch === "x86_64" ? [] : ["32-bit-entry"] });
  entry.test("kills what comes through the 32-bit door", async () => {
    // mov $20 (getpid), %eax; int $0x80; ret
    const code = `import ctypes, mmap
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex("b814000000cd80c3"))
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
print("ready", flush=True)
print(call())
`;
    // A kernel without IA32 emulation has no such door: the instruction faults by itself.
    const isThere = Bun.spawnSync([PYTHON, "-c", code]).exitCode === 0;
    const signal = isThere ? "SIGSYS" : "SIGSEGV";
    const { outcome, stdout } = await run(await bench.open(), code);
    expect(stdout).toBe("ready\n");
    expect(outcome).toMatchObject({ reason: "signal", signal, violations: [] });
  });

  test("a program that sends itself SIGSYS has done nothing else", async () => {
    const code = "import os, signal\nos.kill(os.getpid(), signal.SIGSYS)\n";
    expect((await run(await bench.open(), code)).outcome).toMatchObject({
      reason: "signal",
      signal: "SIGSYS",
      violations: [],
    });
  });

  test("a grandchild's violation ends the whole program, and no other", async () => {
    const lease = await bench.open();
    const beside = await lease.exec({
      executable: "cat",
      arguments: [],
      variables: ENV,
      stdin: "pipe",
    });
    const code = `import os, time
if os.fork() == 0:
  if os.fork() == 0:
    time.sleep(0.05)
    ${calling("ptrace").split("\n").join("\n    ")}
  os._exit(0)
while True: time.sleep(1)
`;
    expectNamed(await run(lease, code), "ptrace");
    await beside.write(Buffer.from("still here"));
    await beside.closeInput();
    expect((await finish(beside)).stdout).toBe("still here");
    expect((await run(lease, "print(6 * 7)")).stdout).toBe("42\n");
  });

  test("a thread's violation ends its process; many at once are one", async () => {
    const code = `import ctypes, threading
call = lambda: ctypes.CDLL(None).syscall(${syscallNumber("bpf", arch)}, 0, 0, 0)
threads = [threading.Thread(target=call) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("returned")
`;
    expectNamed(await run(await bench.open(), code), "bpf");
  });

  test("an interrupted violation never returns a result", async () => {
    const code = `import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
${calling("ptrace").replace("result =", "for _ in range(1000000): result =")}`;
    expectNamed(await run(await bench.open(), code), "ptrace");
  });

  test("node has a profile of its own: its library may try io_uring", async () => {
    const lease = await bench.open();
    const code = calling("io_uring_setup", "8, 0");
    expect((await run(lease, code, "node")).stdout).toBe("-38\n");
    expectNamed(await run(lease, code, "typescript"), "io_uring_setup");
  });

  test("two hundred violations in a row leave the sandbox as it was", async () => {
    const lease = await bench.open({ wall_seconds: paced(60) });
    const once = async (): Promise<void> =>
      expectNamed(
        await finish(
          await lease.exec({
            executable: "unshare",
            arguments: ["-m", "true"],
            variables: ENV,
          }),
        ),
        "unshare",
      );
    for (let round = 0; round < 50; round += 1) await Promise.all([once(), once(), once(), once()]);
    expect((await run(lease, "print(6 * 7)")).stdout).toBe("42\n");
  });
});

// The lowest limit that leaves no descriptor for a listener: the filter that kills takes over.
host.describe("the filter that kills", () => {
  const bench = useEngine();
  const limits = { open_files: 4 };
  const killed = async (executable: string, args: readonly string[]): Promise<Ran> => {
    const lease = await bench.open(limits);
    return finish(await lease.exec({ executable, arguments: args, variables: ENV }));
  };

  test("ends a program without naming the call", async () => {
    const { outcome, notices } = await killed("unshare", ["-m", "true"]);
    const violation = { type: "seccomp_violation" } as const;
    expect(outcome).toMatchObject({
      reason: "seccomp_violation",
      signal: "SIGSYS",
      violations: [violation],
    });
    expect(notices).toContainEqual({ type: "violation", violation });
  });

  test("lets everything else run", async () => {
    expect((await killed("echo", ["ok"])).stdout).toBe("ok\n");
  });
});

host.describe("an operator's policy", () => {
  test("is nothing but what the profiles say, by default", () => {
    expect(parseSeccompPolicy({ production: false })).toEqual({ isOn: true, allow: [] });
  });

  const extended = useEngine({
    seccomp: parseSeccompPolicy({ allow: "sync, keyctl", unsafe: true, production: false }),
  });
  test("lets calls through, and leaves the others", async () => {
    const lease = await extended.open();
    expect((await run(lease, calling("sync"))).stdout).toBe("0\n");
    // ENOKEY or EACCES, from the kernel itself.
    expect(Number((await run(lease, calling("keyctl", "0, -3, 0"))).stdout)).not.toBe(-38);
    expectNamed(await run(lease, calling("add_key", "0, 0, 0, 0, 0")), "add_key");
  });
});

host.describe("a policy that is off", () => {
  const off = useEngine({ seccomp: parseSeccompPolicy({ seccomp: "off", production: false }) });
  test("filters nothing, and says so", async () => {
    expect(off.engine.layers["seccomp"]).toBe(false);
    expect(off.engine.missing).toContain("seccomp");
    const lease = await off.open();
    expect(lease.missing).toContain("seccomp");
    expect((await run(lease, "print(open('/proc/self/status').read())")).stdout).toContain(
      "Seccomp:\t0\n",
    );
  });
});
