/**
 * Why a user cannot have a sandbox on this host, and what exactly would change that: the kernel says
 * EPERM to all of it. What a host forbids is told by its settings and by the step that failed.
 */

import { CprgError } from "../core/errors.ts";
import { type ContainerNeed, containerFix, ENGINE_NAMES } from "./container-fixes.ts";
import { setSysctl } from "./distribution.ts";
import { type HostFacts, judgeHost, readHost } from "./host-facts.ts";
import { AROUND, appArmorProfile, USER_NAMESPACES, unfilterFix } from "./host-fixes.ts";

/** What decides: the host, and whether its kernel has user namespaces at all. */
export interface UsernsFacts {
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
export function readUsernsFacts(): UsernsFacts {
  const raw = readHost();
  return {
    host: judgeHost(raw),
    hasUserNamespaces: raw.files["/proc/sys/user/max_user_namespaces"] !== null,
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
  const { host } = facts;
  const isLimit = errnoName === "ENOSPC" || errnoName === "EUSERS";
  if (step === "clone") return cloneProblem(facts, { isLimit, errnoName });
  if (!DENIED_LATER.includes(step)) return null;
  if (isLimit && step !== "mount") return noNamespaces(host);
  if (!DENIALS.includes(errnoName)) return null;
  if (host.userNamespaces.isAppArmorRestricted) return appArmor(host);
  if (step === "mount" && host.procMasks.length > 0) return maskedProc(host);
  if (host.container !== null) return inContainer(host);
  if (host.isFiltered) return filtered(host);
  return {
    reason: "USERNS_DENIED",
    message: `a security module denies what is done in a user namespace (${step} ${index}: ${errnoName})`,
    hint: "See the kernel's log (dmesg) for the denial and allow cprg there",
  };
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
  const { container, procMasks } = host;
  const unknown =
    container === null
      ? `Unmount what covers it (umount ${procMasks[0]}), or start cprg where nothing does`
      : "Start the container with all of /proc, as `docker run --security-opt systempaths=unconfined` does for Docker";
  return {
    reason: "PROC_MASKED",
    message: `no /proc may be mounted, because ${nameOf(host)} covers parts of this one (${procMasks.slice(0, 3).join(", ")})`,
    hint: containerFix(["proc"], host) ?? unknown,
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
