/**
 * Why there can be no sandbox on this host, and what exactly would change that: the kernel says
 * EPERM to all of it. What a host forbids is told by its settings and by the step that failed.
 */

import { statSync } from "node:fs";
import { CprgError, type SetupFailure } from "../core/errors.ts";
import { type ContainerNeed, containerFix, ENGINE_NAMES } from "./container-fixes.ts";
import { setSysctl } from "./distribution.ts";
import { type HostFacts, judgeHost, readHost } from "./host-facts.ts";
import { AROUND, appArmorProfile, USER_NAMESPACES, unfilterFix } from "./host-fixes.ts";

/** What decides: the host, whether its kernel has user namespaces at all, and who wants them. */
export interface UsernsFacts {
  /** Root's engine, or a user's: root of a namespace that somebody made is a user too. */
  readonly mode: "ns" | "rootless";
  readonly host: HostFacts;
  readonly hasUserNamespaces: boolean;
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
export function readUsernsFacts(mode: UsernsFacts["mode"]): UsernsFacts {
  const raw = readHost();
  return {
    mode,
    host: judgeHost(raw),
    hasUserNamespaces: raw.files["/proc/sys/user/max_user_namespaces"] !== null,
  };
}

/** The error of a sandbox that failed, with the reason of this host, which is looked at only then. */
export function explainHere(error: unknown, mode: UsernsFacts["mode"]): unknown {
  const isSetup = CprgError.is(error) && error.setup !== undefined;
  return isSetup ? explainSetup(error, readUsernsFacts(mode)) : error;
}

/** The error of a sandbox that failed, with the host's own reason where one is known. */
export function explainSetup(error: unknown, facts: UsernsFacts): unknown {
  if (!CprgError.is(error) || error.setup === undefined) return error;
  const problem = isClosedPath(error.setup) ? null : findProblem(facts, error.setup);
  if (problem === null) return error;
  // Root's programs would have the whole host: no advice.
  const hint = facts.mode === "ns" ? problem.hint : `${problem.hint}; ${OFF_HINT}`;
  return new CprgError("failed_precondition", `Cannot run sandboxes: ${problem.message}`, {
    reason: problem.reason,
    hint,
    setup: error.setup,
    cause: error,
  });
}

/** Whether a mount failed for the path that it is of: the operator's to open, and no policy. */
function isClosedPath({ step, errnoName, subject }: SetupFailure): boolean {
  if (step !== "mount" || errnoName !== "EACCES" || subject === undefined) return false;
  try {
    statSync(subject);
    return false;
  } catch (error) {
    // Not ENOENT: a place in the new root is none on the host.
    return (error as NodeJS.ErrnoException).code === "EACCES";
  }
}

/** What is in the way, by the step that failed and its errno; null for what is no host's policy. */
export function findProblem(
  facts: UsernsFacts,
  failure: Omit<SetupFailure, "errno">,
): UsernsProblem | null {
  const { host, mode } = facts;
  if (mode === "ns") return rootProblem(host, failure);
  const { step, index, errnoName } = failure;
  const isLimit = errnoName === "ENOSPC" || errnoName === "EUSERS";
  if (step === "clone") return cloneProblem(facts, { isLimit, errnoName });
  if (!DENIED_LATER.includes(step)) return null;
  if (isLimit && step !== "mount") return noNamespaces(host);
  if (!DENIALS.includes(errnoName)) return null;
  if (host.userNamespaces.isAppArmorRestricted) return appArmor(host);
  if (isMaskedProc(host, failure)) return maskedProc(host);
  if (host.container !== null) return inContainer(host);
  if (host.isFiltered) return filtered(host);
  return {
    reason: "USERNS_DENIED",
    message: `a security module denies what is done in a user namespace (${step} ${index}: ${errnoName})`,
    hint: "See the kernel's log (dmesg) for the denial and allow cprg there",
  };
}

/** What stops root is around the process; the settings that are for users alone do not. */
function rootProblem(host: HostFacts, failure: Omit<SetupFailure, "errno">): UsernsProblem | null {
  if (!DENIALS.includes(failure.errnoName)) return null;
  if (isMaskedProc(host, failure)) return maskedProc(host);
  if (failure.step !== "clone" || !host.isFiltered) return null;
  return host.container === null ? filtered(host) : inContainer(host);
}

/** The kernel makes no new /proc where parts of the one around are covered (mount_namespaces(7)). */
function isMaskedProc(
  { procMasks }: HostFacts,
  { step, subject = "/proc" }: Pick<SetupFailure, "step" | "subject">,
): boolean {
  return step === "mount" && subject === "/proc" && procMasks.length > 0;
}

function cloneProblem(
  { host, hasUserNamespaces }: UsernsFacts,
  { isLimit, errnoName }: { readonly isLimit: boolean; readonly errnoName: string },
): UsernsProblem | null {
  if (!hasUserNamespaces || errnoName === "EINVAL") {
    return {
      reason: "NO_USERNS",
      message: "this kernel is built without user namespaces",
      hint: "Use a kernel with CONFIG_USER_NS, or start cprg as root",
    };
  }
  if (host.userNamespaces.max === 0 || isLimit) return noNamespaces(host);
  if (!DENIALS.includes(errnoName)) return null;
  if (host.userNamespaces.isCloneForbidden) {
    return {
      reason: "USERNS_CLONE_OFF",
      message: "user namespaces are for root only (kernel.unprivileged_userns_clone=0)",
      hint: asRoot(host, "kernel.unprivileged_userns_clone", 1),
    };
  }
  if (host.userNamespaces.isAppArmorRestricted) return appArmor(host);
  if (host.container !== null) return inContainer(host);
  if (host.isFiltered) return filtered(host);
  return {
    reason: "USERNS_DENIED",
    message: "the kernel or a security module forbids user namespaces",
    hint: "See the kernel's log (dmesg); a process in a chroot may make none (user_namespaces(7))",
  };
}

/** A setting of the kernel that a container shares with the machine around it. */
function asRoot({ container, distribution }: HostFacts, name: string, value: number): string {
  const where = container === null ? "As root: " : AROUND;
  return `${where}${setSysctl(name, value, distribution)}`;
}

function noNamespaces(host: HostFacts): UsernsProblem {
  return {
    reason: "MAX_USER_NAMESPACES",
    message: `no more user namespaces may be made (user.max_user_namespaces=${host.userNamespaces.max})`,
    hint: asRoot(host, "user.max_user_namespaces", USER_NAMESPACES),
  };
}

function appArmor(host: HostFacts): UsernsProblem {
  const sysctl = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  const where = host.container === null ? "As root" : `${AROUND}as root`;
  return {
    reason: "APPARMOR_USERNS",
    message:
      "AppArmor lets a user make namespaces and denies all that is done in them (kernel.apparmor_restrict_unprivileged_userns=1)",
    hint: `${where}, give cprg a profile:\n${appArmorProfile(host.executable)}\nor let every program: ${sysctl}`,
  };
}

function maskedProc(host: HostFacts): UsernsProblem {
  const { container, procMasks, isFiltered, absentCapabilities } = host;
  // What the filter would refuse next, unless the container has the capability for it.
  const needs: readonly ContainerNeed[] =
    isFiltered && absentCapabilities.includes("SYS_ADMIN") ? ["filter", "proc"] : ["proc"];
  const unknown =
    container === null
      ? `Unmount what covers it (umount ${procMasks[0]}), or start cprg where nothing does`
      : "Start the container with all of /proc, as `docker run --security-opt systempaths=unconfined` does for Docker";
  return {
    reason: "PROC_MASKED",
    message: `no /proc may be mounted, because ${nameOf(host)} covers parts of this one (${procMasks.slice(0, 3).join(", ")})`,
    hint: containerFix(needs, host) ?? unknown,
  };
}

function nameOf({ container }: HostFacts): string {
  return container === null ? "something" : ENGINE_NAMES[container];
}

/** All that it takes away; where nothing can be seen, whatever an engine takes away by default. */
function inContainer(host: HostFacts): UsernsProblem {
  const seen: readonly ContainerNeed[] = [
    ...(host.isFiltered ? (["filter"] as const) : []),
    ...(host.confinement === null ? [] : [host.confinement.by]),
    ...(host.procMasks.length > 0 ? (["proc"] as const) : []),
  ];
  const needs: readonly ContainerNeed[] = seen.length > 0 ? seen : ["filter", "apparmor", "proc"];
  const unknown =
    "Start the container without a filter of system calls, without a confining profile and with all of /proc";
  return {
    reason: "CONTAINER",
    message: `${nameOf(host)} around this process forbids user namespaces or mounts in them`,
    hint: `${containerFix(needs, host) ?? unknown}; cprg puts its own filter on every program`,
  };
}

function filtered(host: HostFacts): UsernsProblem {
  return {
    reason: "FILTERED",
    message:
      "a filter of system calls around this process forbids user namespaces or mounts in them",
    hint: `${unfilterFix(host)}; cprg puts its own filter on every program`,
  };
}
