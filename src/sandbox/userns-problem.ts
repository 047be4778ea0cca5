/**
 * Why a user cannot have a sandbox on this host, and what exactly would change that: the kernel says
 * EPERM to all of it. What a host forbids is told by its settings and by the step that failed.
 */

import { existsSync, readFileSync } from "node:fs";
import { CprgError } from "../core/errors.ts";

/** What decides. */
export interface UsernsFacts {
  /** `user.max_user_namespaces`; null: a kernel without user namespaces. */
  readonly maxUserNamespaces: number | null;
  /** `kernel.unprivileged_userns_clone` of Debian's kernels; null where there is none. */
  readonly unprivilegedClone: number | null;
  /** `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu 23.10); null where there is none. */
  readonly apparmorRestrict: number | null;
  /** The kind of container around us, if one is known. */
  readonly container: "docker" | "podman" | "other" | null;
  /** Whether something is mounted over parts of /proc, as container engines do. */
  readonly isProcMasked: boolean;
  /** Whether a filter of system calls is already in force. */
  readonly isFiltered: boolean;
}

/** One reason. */
export interface UsernsProblem {
  readonly reason: string;
  readonly message: string;
  readonly hint: string;
}

/** Steps of a set-up that fail where namespaces can be made and are of no use. */
const DENIED_LATER: readonly string[] = [
  "id_map",
  "become_root",
  "unshare",
  "private",
  "root_tmpfs",
  "mount",
  "pivot",
  "capabilities",
];
const DENIALS: readonly string[] = ["EPERM", "EACCES"];
const OFF_HINT = "or run programs with no sandbox at all, as this user: --sandbox off";

/** Reads the facts. */
export function readUsernsFacts(): UsernsFacts {
  const mounts = textOf("/proc/self/mountinfo") ?? "";
  return {
    maxUserNamespaces: numberOf("/proc/sys/user/max_user_namespaces"),
    unprivilegedClone: numberOf("/proc/sys/kernel/unprivileged_userns_clone"),
    apparmorRestrict: numberOf("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    container: containerAround(),
    isProcMasked: mounts.split("\n").some((line) => /^\S+ \S+ \S+ \S+ \/proc\/\S/.test(line)),
    isFiltered: /^Seccomp:\s+2$/m.test(textOf("/proc/self/status") ?? ""),
  };
}

/** The error of a first sandbox that failed, with the host's own reason where one is known. */
export function explainRootless(error: unknown, facts: UsernsFacts): unknown {
  if (!CprgError.is(error) || error.setup === undefined) return error;
  const problem = findProblem(facts, error.setup);
  if (problem === null) return error;
  return new CprgError("failed_precondition", `Cannot run sandboxes: ${problem.message}`, {
    reason: problem.reason,
    hint: `${problem.hint}; ${OFF_HINT}`,
    setup: error.setup,
    cause: error,
  });
}

/** What is in the way, by the step that failed and its errno; null for what is no host's policy. */
export function findProblem(
  facts: UsernsFacts,
  {
    step,
    index,
    errnoName,
  }: { readonly step: string; readonly index: number; readonly errnoName: string },
): UsernsProblem | null {
  const isLimit = errnoName === "ENOSPC" || errnoName === "EUSERS";
  if (step === "clone") return cloneProblem(facts, { isLimit, errnoName });
  if (!DENIED_LATER.includes(step)) return null;
  if (isLimit && step !== "mount") return noNamespaces(facts);
  if (!DENIALS.includes(errnoName)) return null;
  if (facts.apparmorRestrict === 1) return APPARMOR;
  if (step === "mount" && facts.isProcMasked) return maskedProc(facts);
  if (facts.container !== null) return inContainer(facts);
  return {
    reason: "USERNS_DENIED",
    message: `a security module denies what is done in a user namespace (${step} ${index}: ${errnoName})`,
    hint: "See the kernel's log (dmesg) for the denial and allow cprg there",
  };
}

function cloneProblem(
  facts: UsernsFacts,
  { isLimit, errnoName }: { readonly isLimit: boolean; readonly errnoName: string },
): UsernsProblem | null {
  if (facts.maxUserNamespaces === null || errnoName === "EINVAL") {
    return {
      reason: "NO_USERNS",
      message: "this kernel is built without user namespaces",
      hint: "Use a kernel with CONFIG_USER_NS, or start cprg as root",
    };
  }
  if (facts.maxUserNamespaces === 0 || isLimit) return noNamespaces(facts);
  if (!DENIALS.includes(errnoName)) return null;
  if (facts.unprivilegedClone === 0) {
    return {
      reason: "USERNS_CLONE_OFF",
      message: "user namespaces are for root only (kernel.unprivileged_userns_clone=0)",
      hint: "As root: sysctl -w kernel.unprivileged_userns_clone=1, and put the same in /etc/sysctl.d/ to keep it",
    };
  }
  if (facts.apparmorRestrict === 1) return APPARMOR;
  if (facts.container !== null || facts.isFiltered) return inContainer(facts);
  return {
    reason: "USERNS_DENIED",
    message: "the kernel or a security module forbids user namespaces",
    hint: "See the kernel's log (dmesg); a process in a chroot may make none (user_namespaces(7))",
  };
}

function noNamespaces({ maxUserNamespaces }: UsernsFacts): UsernsProblem {
  return {
    reason: "MAX_USER_NAMESPACES",
    message: `no more user namespaces may be made (user.max_user_namespaces=${maxUserNamespaces ?? 0})`,
    hint: "As root: sysctl -w user.max_user_namespaces=10000, and put the same in /etc/sysctl.d/ to keep it",
  };
}

const APPARMOR: UsernsProblem = {
  reason: "APPARMOR_USERNS",
  message:
    "AppArmor lets a user make namespaces and denies all that is done in them (kernel.apparmor_restrict_unprivileged_userns=1)",
  hint: "As root, give cprg a profile: printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile cprg /usr/local/bin/cprg flags=(unconfined) {\\n  userns,\\n}\\n' > /etc/apparmor.d/cprg && apparmor_parser -r /etc/apparmor.d/cprg (with the path of your cprg); or for every program: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
};

function maskedProc({ container }: UsernsFacts): UsernsProblem {
  const flag = {
    docker: "docker run --security-opt systempaths=unconfined",
    podman: "podman run --security-opt unmask=ALL",
    other:
      "Kubernetes: securityContext.procMount: Unmasked; docker: --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL",
  }[container ?? "other"];
  return {
    reason: "PROC_MASKED",
    message:
      "no /proc may be mounted, because parts of this one are covered (a container's masked paths)",
    hint: flag,
  };
}

function inContainer({ container, isFiltered }: UsernsFacts): UsernsProblem {
  const engine = container === "podman" ? "podman" : "docker";
  const flags = [
    ...(isFiltered ? ["--security-opt seccomp=unconfined"] : []),
    "--security-opt apparmor=unconfined",
    engine === "podman" ? "--security-opt unmask=ALL" : "--security-opt systempaths=unconfined",
  ];
  return {
    reason: "CONTAINER",
    message: "the container around this process forbids user namespaces or mounts in them",
    hint: `${engine} run ${flags.join(" ")}; cprg puts its own filter on every program`,
  };
}

/** Files by which container engines can be told. */
const MARKS = {
  docker: ["/.dockerenv"],
  podman: ["/run/.containerenv"],
  other: ["/run/systemd/container", "/var/run/secrets/kubernetes.io"],
} as const;

function containerAround(): UsernsFacts["container"] {
  for (const kind of ["docker", "podman", "other"] as const) {
    if (MARKS[kind].some((path) => existsSync(path))) return kind;
  }
  return null;
}

function numberOf(path: string): number | null {
  const text = textOf(path);
  return text === null ? null : Number(text);
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // The kernel has no such setting, or hides it.
    return null;
  }
}
