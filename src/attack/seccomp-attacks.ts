/** Attacks on the filter of system calls: calls that only an attack makes, and ways around it. */

import type { SyscallName } from "../sandbox/seccomp/syscall-table.ts";
import {
  type Attack,
  broken,
  defineAttack,
  held,
  type Seen,
  type Verdict,
  verdict,
} from "./attack.ts";
import { isAlive, processStatus } from "./host-process.ts";
import { ARCH, javascript, nr } from "./javascript.ts";

const EAFNOSUPPORT = -97;
const EPERM = -1;
const ENOSYS = -38;
const CLONE_NEWUSER = 0x1000_0000;
const X32_BIT = 0x4000_0000;

interface Trapped {
  readonly syscall: SyscallName;
  /** Arguments in JavaScript. */
  readonly args: string;
  readonly title: string;
}

const TRAPPED: readonly Trapped[] = [
  { syscall: "ptrace", args: "16, 1, 0, 0", title: "attach to process 1 (ptrace)" },
  { syscall: "process_vm_readv", args: "1, 0, 0, 0, 0, 0", title: "read the memory of process 1" },
  { syscall: "pidfd_getfd", args: "3, 0, 0", title: "take a descriptor out of another process" },
  { syscall: "bpf", args: "0, 0, 0", title: "load a program into the kernel (bpf)" },
  { syscall: "perf_event_open", args: "0, 0, -1, -1, 0", title: "observe the machine (perf)" },
  { syscall: "userfaultfd", args: "0", title: "stop the kernel in a copy (userfaultfd)" },
  { syscall: "io_uring_setup", args: "8, 0", title: "make calls that no filter sees (io_uring)" },
  { syscall: "unshare", args: String(CLONE_NEWUSER), title: "make a user namespace (unshare)" },
  {
    syscall: "clone",
    args: `${CLONE_NEWUSER} + 17, 0, 0, 0, 0`,
    title: "make a user namespace (clone)",
  },
  { syscall: "setns", args: "0, 0", title: "enter a namespace (setns)" },
  { syscall: "mount", args: "0, 0, 0, 0, 0", title: "mount a file system" },
  { syscall: "umount2", args: "0, 2", title: "uncover what a mount hides (umount)" },
  { syscall: "pivot_root", args: "0, 0", title: "change the root (pivot_root)" },
  { syscall: "fsopen", args: "0, 0", title: "make a file system (fsopen)" },
  { syscall: "open_by_handle_at", args: "-1, 0, 0", title: "open a file by its number (shocker)" },
  { syscall: "keyctl", args: "0, -3, 0", title: "use the kernel's keyrings (keyctl)" },
  { syscall: "add_key", args: "0, 0, 0, 0, 0", title: "use the kernel's keyrings (add_key)" },
  { syscall: "init_module", args: "0, 0, 0", title: "load a kernel module" },
  { syscall: "finit_module", args: "-1, 0, 0", title: "load a kernel module from a file" },
  { syscall: "kexec_load", args: "0, 0, 0, 0", title: "replace the kernel (kexec)" },
  { syscall: "reboot", args: "0, 0, 0", title: "restart the machine (reboot)" },
  { syscall: "swapon", args: "0, 0", title: "administer the host's swap" },
];

/** The program was killed in the call, and the call named where this host's kernel can name it. */
function judgeTrapped(syscall: SyscallName, seen: Seen): Verdict {
  const { outcome, stdout, stage } = seen;
  if (stdout.includes("RETURNED")) return broken(`${syscall} returned: ${stdout.trim()}`);
  if (outcome.reason !== "seccomp_violation") return broken(`it ended by ${outcome.reason}`);
  if (stage.engine.layers["seccomp"] !== "notify") return held("killed in the call");
  const named = outcome.violations[0]?.syscall;
  return named === syscall ? held(`killed in the call, named ${named}`) : broken(`named ${named}`);
}

function trapped({ syscall, args, title }: Trapped): Attack {
  return defineAttack({
    id: `seccomp.${syscall}`,
    layer: "seccomp",
    needs: ["seccomp"],
    title,
    program: javascript(`say("RETURNED " + call(${nr(syscall)}, ${args}));`),
    judge: (seen) => judgeTrapped(syscall, seen),
  });
}

/** Families of socket(2) that reach the kernel's other parts. */
const FAMILIES = { netlink: 16, packet: 17, alg: 38, vsock: 40, xdp: 44, tipc: 30, can: 29 };
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

/** mov $20, %eax (getpid); int $0x80; ret */
const INT_80 = [0xb8, 0x14, 0, 0, 0, 0xcd, 0x80, 0xc3];

/** The attacks. */
export const SECCOMP_ATTACKS: readonly Attack[] = [
  ...TRAPPED.map(trapped),
  defineAttack({
    id: "seccomp.sockets",
    layer: "seccomp",
    needs: ["seccomp"],
    title: `open sockets of ${Object.keys(FAMILIES).join(", ")}`,
    program: javascript(`
const families = ${JSON.stringify(FAMILIES)};
report(Object.fromEntries(Object.entries(families).map(([name, family]) => [name, call(${nr("socket")}, family, 3, 0)])));
`),
    judge: (seen) => {
      const open = Object.entries(seen.report()).filter(([, result]) => result !== EAFNOSUPPORT);
      return verdict(
        open.map(([name, result]) => `${name}: ${result}`),
        "each EAFNOSUPPORT",
      );
    },
  }),
  defineAttack({
    id: "seccomp.tiocsti",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "type into a terminal (TIOCSTI, TIOCLINUX), also with bits set that the kernel ignores",
    program: javascript(`
const typed = address(Buffer.from("x"));
const ioctl = (request) => call(${nr("ioctl")}, 0, request, typed);
report({ plain: ioctl(${TIOCSTI}), high: ioctl(0xffffffff00000000n + ${TIOCSTI}n), linux: ioctl(${TIOCLINUX}), highLinux: ioctl(0x100000000n + ${TIOCLINUX}n) });
`),
    judge: (seen) => {
      // Without the filter it is ENOTTY: standard input is no terminal.
      const others = Object.entries(seen.report()).filter(([, result]) => result !== EPERM);
      return verdict(
        others.map(([name, result]) => `${name}: ${result}`),
        "each EPERM",
      );
    },
  }),
  defineAttack({
    id: "seccomp.clone3",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "hide the flags of a clone behind a pointer (clone3)",
    program: javascript(
      `report({ result: call(${nr("clone3")}, address(Buffer.alloc(88)), 88) });`,
    ),
    judge: (seen) =>
      seen.report()["result"] === ENOSYS
        ? held("ENOSYS")
        : broken(`it returned ${seen.report()["result"]}`),
  }),
  ...(ARCH === "x86_64" ? [thirtyTwoBit(), x32()] : []),
  defineAttack({
    id: "seccomp.child",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "let a child make the call and go on",
    program: javascript(`
if (host.child !== undefined) say("RETURNED " + call(${nr("ptrace")}, 16, 1, 0, 0));
const { spawnSync } = process.getBuiltinModule("node:child_process");
spawnSync(process.execPath, process.argv.slice(1), { input: '{"child":1}\\n', env: process.env, stdio: ["pipe", "inherit", "inherit"] });
say("WENT ON");
`),
    judge: (seen) => {
      if (seen.stdout.includes("RETURNED")) return broken("the child's call returned");
      const isEnded = seen.outcome.reason === "seccomp_violation";
      if (isEnded) return held("the whole program was killed");
      const mayLive = seen.stage.engine.layers["seccomp"] === "kill";
      return mayLive ? held("the child was killed") : broken("the program went on");
    },
  }),
  defineAttack({
    id: "seccomp.lease",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "take the rest of its sandbox with it",
    program: javascript(`say("RETURNED " + call(${nr("ptrace")}, 16, 1, 0, 0));`),
    after: { program: javascript("report({ alive: true });"), where: "same" },
    judge: (seen) =>
      seen.reportAfter()["alive"] === true
        ? held("another program runs in the same sandbox")
        : broken("nothing runs there any more"),
  }),
  defineAttack({
    id: "seccomp.forged",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "be taken for a violation by sending itself SIGSYS",
    program: javascript(`call(${nr("kill")}, process.pid, 31); released();`),
    judge: ({ outcome, stage }) => {
      // Where the filter kills, the kernel's own SIGSYS looks the same.
      if (stage.engine.layers["seccomp"] !== "notify") return held("not told apart on this host");
      return outcome.reason === "signal" && outcome.violations.length === 0
        ? held("it ended by a signal, and no violation was noted")
        : broken(`it ended by ${outcome.reason}`);
    },
  }),
  defineAttack({
    id: "seccomp.state",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "run without the filter, or take it off",
    program: javascript(`
report({ off: call(${nr("prctl")}, 22, 0, 0, 0, 0), own: call(${nr("seccomp")}, 1, 0, 0) });
released();
`),
    watch: ({ programs }) =>
      programs.filter(isAlive).map(({ pid }) => processStatus(pid)["Seccomp"] ?? "unknown"),
    judge: (seen) => {
      const { off, own } = seen.report();
      const isOn = seen.watched.length > 0 && seen.watched.every((state) => state === "2");
      const isRefused = Number(off) < 0 && Number(own) < 0;
      return isOn && isRefused ? held("on the host: Seccomp 2") : broken(`Seccomp ${seen.watched}`);
    },
  }),
];

function thirtyTwoBit(): Attack {
  return defineAttack({
    id: "seccomp.int80",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "enter the kernel by the 32-bit door, where calls have other numbers (int $0x80)",
    program: javascript(`
const { ffi, syscall } = libc();
const memory = Number(syscall(${nr("mmap")}, 0, 4096, 7, 0x22, -1, 0, 0));
new Uint8Array(ffi.toArrayBuffer(memory, 0, 4096)).set(${JSON.stringify(INT_80)});
// The runtime's own handler of faults makes calls that are trapped.
for (const signal of [4, 5, 7, 11]) call(${nr("rt_sigaction")}, signal, address(Buffer.alloc(32)), 0, 8);
const enter = ffi.CFunction({ ptr: memory, args: [], returns: "i32" });
say("MAPPED");
say("RETURNED " + enter());
`),
    judge: ({ stdout, outcome }) => {
      if (!stdout.includes("MAPPED")) return broken("it could not be tried");
      if (stdout.includes("RETURNED")) return broken("the call returned");
      // A kernel without IA32 emulation has no such door: the instruction itself faults.
      const isFault =
        outcome.signal === "SIGSEGV" || outcome.signal === "SIGTRAP" || outcome.signal === "SIGILL";
      if (outcome.signal === "SIGSYS") return held("killed by SIGSYS");
      return isFault
        ? held("this kernel has no such door")
        : broken(`it ended by ${outcome.reason}`);
    },
  });
}

function x32(): Attack {
  return defineAttack({
    id: "seccomp.x32",
    layer: "seccomp",
    needs: ["seccomp"],
    title: "enter the kernel with numbers of the x32 interface",
    program: javascript(`say("RETURNED " + call(${X32_BIT + nr("getpid")}));`),
    judge: ({ stdout, outcome }) =>
      outcome.signal === "SIGSYS" && !stdout.includes("RETURNED")
        ? held("killed by SIGSYS")
        : broken(`it ended by ${outcome.reason}: ${stdout.trim()}`),
  });
}
