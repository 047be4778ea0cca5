/**
 * Where a set-up can fail (`enum cprg_step` of ffi/cprg.h): the name of each step and what the
 * operator can do about it. test/sandbox/layout.test.ts compares the numbers with the header.
 */

import { constants } from "node:os";
import { CprgError, type ErrorCode, type SetupFailure } from "../core/errors.ts";

interface Step {
  readonly name: string;
  readonly fix: string;
}

const CGROUP_FIX =
  "Run `cprg doctor`; give the server a group of its own (systemd: Delegate=yes) or name one with CPRG_CGROUP";
const BUG_FIX = "Report this with the output of `cprg doctor`: the request itself was refused";
const REFUSED_FIX =
  "A container's filter or a security module refuses what process 1 does: see `cprg doctor`; where nothing is around the server, report it";
const USERNS_FIX =
  "Allow user namespaces: sysctl user.max_user_namespaces=10000 (Debian, Ubuntu: also kernel.unprivileged_userns_clone=1)";
const BUSY_FIX = "The host is out of processes or memory: lower the job slots or free some";
const FORK_FIX =
  "The host, or the server's user, is at its limit of processes: kernel.pid_max, pids.max of the groups above, `ulimit -u`";
const TRANSFER_FIX = "Check that the path exists inside the sandbox and that its disk is not full";

/** Every step by its number. */
export const STEPS: Readonly<Record<number, Step>> = {
  0: { name: "none", fix: BUG_FIX },
  1: { name: "request", fix: BUG_FIX },
  2: { name: "arena", fix: BUSY_FIX },
  3: { name: "clone", fix: USERNS_FIX },
  4: { name: "id_map", fix: "The server needs root (CAP_SETUID and CAP_SETGID) to map ids" },
  5: { name: "go", fix: BUSY_FIX },
  16: { name: "wait_map", fix: BUSY_FIX },
  17: { name: "cgroup", fix: CGROUP_FIX },
  18: { name: "become_root", fix: USERNS_FIX },
  19: { name: "descriptors", fix: REFUSED_FIX },
  20: {
    name: "exec_init",
    fix: "The kernel refuses to execute memfds: sysctl vm.memfd_noexec=1 or lower",
  },
  32: { name: "reset", fix: REFUSED_FIX },
  33: { name: "plan", fix: BUG_FIX },
  34: {
    name: "unshare",
    fix: "Allow namespaces: see /proc/sys/user/max_*_namespaces; AppArmor: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
  },
  35: {
    name: "private",
    fix: "The host's mounts cannot be made private: an outer container or AppArmor forbids mounting",
  },
  36: {
    name: "root_tmpfs",
    fix: "The host has no /sys directory, or an outer container or AppArmor forbids mounting",
  },
  37: {
    name: "mount",
    fix: "The named path must exist and be reachable by every user, check CPRG_BINDS; a container that hides parts of /proc forbids mounting it, see `cprg doctor`",
  },
  38: {
    name: "pivot",
    fix: "The host's root is an initramfs, which pivot_root cannot leave: switch_root to a real root first; or a container's filter refuses it: see `cprg doctor`",
  },
  39: {
    name: "read_only",
    fix: "The kernel refused to make the root read-only; see `cprg doctor`",
  },
  40: {
    name: "hostname",
    fix: "A container's filter lets only CAP_SYS_ADMIN name a sandbox: start it with --security-opt seccomp=unconfined, or with --cap-add SYS_ADMIN",
  },
  41: { name: "capabilities", fix: REFUSED_FIX },
  42: { name: "ready", fix: BUG_FIX },
  64: { name: "fork", fix: FORK_FIX },
  65: { name: "exec_cgroup", fix: CGROUP_FIX },
  66: { name: "session", fix: BUG_FIX },
  67: { name: "stdio", fix: BUG_FIX },
  68: { name: "rlimit", fix: "Lower the limit: the host allows less (ulimit -H)" },
  69: { name: "identity", fix: BUG_FIX },
  70: { name: "no_new_privs", fix: BUG_FIX },
  71: { name: "directory", fix: "The working directory must exist inside the sandbox" },
  72: {
    name: "execve",
    fix: "The program must exist inside the sandbox, which sees /usr, /bin, /lib and CPRG_BINDS of the host, and be executable",
  },
  73: {
    name: "seccomp",
    fix: "The kernel or a container's filter refuses system call filters: see `cprg doctor`; CPRG_SECCOMP=off gives them up",
  },
  80: { name: "stream", fix: TRANSFER_FIX },
  81: { name: "entry", fix: TRANSFER_FIX },
  82: { name: "commit", fix: TRANSFER_FIX },
};

/** The first step of what process 1 does for programs and transfers, with descriptors of its own. */
const INSIDE_STEP = 64;
/** Of the server's own steps: what these say is the same whichever of them fails. */
const SHORTAGE_FIXES: Readonly<Record<string, string>> = {
  EMFILE: "The server has too many connections and files open: raise its limit (ulimit -n)",
  ENFILE: "The host has too many files open: raise fs.file-max",
  EAGAIN: FORK_FIX,
  ENOMEM: BUSY_FIX,
};

/** Of two names for one, the usual comes first: EAGAIN, EWOULDBLOCK. */
const ERRNO_NAMES = new Map<number, string>(
  Object.entries(constants.errno)
    .toReversed()
    .map(([name, value]) => [value, name]),
);

/** `ENOENT` for 2; `errno 4095` for what has no name. */
export function errnoName(errno: number): string {
  return ERRNO_NAMES.get(errno) ?? `errno ${errno}`;
}

/** The last entry of a number wins; of two names for one, the usual comes first: SIGABRT, SIGIOT. */
const SIGNAL_NAMES = new Map<number, string>(
  Object.entries(constants.signals)
    .toReversed()
    .map(([name, value]) => [value, name]),
);

/** `SIGKILL` for 9; real-time signals by their number: `SIG34`. */
export function signalName(signal: number): string {
  return SIGNAL_NAMES.get(signal) ?? `SIG${signal}`;
}

/** The number of a signal's name. @throws CprgError `invalid_argument` */
export function signalNumber(name: string): number {
  const number = (constants.signals as Readonly<Record<string, number>>)[name];
  if (number === undefined) {
    throw new CprgError(
      "invalid_argument",
      `Cannot send signal "${name.slice(0, 32)}": unknown name`,
      {
        field: "signal",
        hint: "Use a name of signal(7), such as SIGINT",
      },
    );
  }
  return number;
}

/** A failed step as it comes from C. */
export interface StepFailure {
  readonly step: number;
  readonly index: number;
  readonly errno: number;
}

/** How a failed step becomes an error. */
export interface StepErrorOptions {
  /** A verb phrase: `create sandbox`. */
  readonly op: string;
  /** What the index of the step stands for, e.g. the path of a mount. */
  readonly subject?: string;
  readonly code?: ErrorCode;
  readonly reason?: string;
}

/**
 * The error of a failed step: names the step, the errno and the fix. Where the host is short of
 * something it is `unavailable`, else `failed_precondition` unless the options say otherwise.
 */
export function stepError(failure: StepFailure, options: StepErrorOptions): CprgError {
  const step = STEPS[failure.step] ?? { name: `step ${failure.step}`, fix: BUG_FIX };
  const setup: SetupFailure = {
    step: step.name,
    index: failure.index,
    errno: failure.errno,
    errnoName: errnoName(failure.errno),
    ...(options.subject === undefined ? {} : { subject: options.subject }),
  };
  const shortage = failure.step < INSIDE_STEP ? SHORTAGE_FIXES[setup.errnoName] : undefined;
  const code = shortage === undefined ? "failed_precondition" : "unavailable";
  const what = options.subject === undefined ? step.name : `${step.name} "${options.subject}"`;
  return new CprgError(options.code ?? code, `Cannot ${options.op}: ${what}: ${setup.errnoName}`, {
    op: options.op,
    reason: options.reason ?? "SETUP_FAILED",
    hint: shortage ?? step.fix,
    setup,
  });
}

/** errno value of a failed call of node:fs, or 0. */
export function errnoOf(error: unknown): number {
  const errno = (error as { readonly errno?: unknown } | null)?.errno;
  return typeof errno === "number" ? Math.abs(errno) : 0;
}
