/** What this host has of each layer, with the fix for what is missing: `cprg doctor` prints it. */

import { readFileSync } from "node:fs";
import { arch, release } from "node:os";
import { CprgError } from "../core/errors.ts";
import { DEFAULT_LIMITS } from "../core/limits.ts";
import { silentLog } from "../core/log.ts";
import { capabilityMask, capabilityNames } from "./capability-names.ts";
import { readCount } from "./cgroup-files.ts";
import type { CgroupHost } from "./cgroup-hierarchy.ts";
import { findCgroups } from "./cgroup-host.ts";
import { openLocalEngine } from "./engine.ts";
import type { EngineOptions } from "./engine-contract.ts";
import { type HostFacts, judgeHost, readHost } from "./host-facts.ts";
import { mendLayers } from "./host-fixes.ts";
import { heldLayers } from "./host-held.ts";
import { interpreterLayers } from "./host-interpreters.ts";
import type { HostLayer } from "./host-layer.ts";
import { allowsUserNamespaces, kernelAtLeast, reservingSwitches } from "./kernel.ts";
import { checkDelegated } from "./rootless.ts";
import { seccompSupport } from "./seccomp/host-support.ts";
import { neededCapabilities, type ServerNeeds } from "./server-capabilities.ts";
import { serverNeeds } from "./server-needs.ts";
import { ownCapabilities } from "./thread-capabilities.ts";

export type { HostLayer } from "./host-layer.ts";

/** Everything about a host. */
export interface HostReport {
  readonly kernel: string;
  readonly arch: string;
  readonly uid: number;
  readonly cgroup: CgroupHost["version"] | null;
  /** `Debian GNU/Linux 12 (bookworm)`, or `Linux`. */
  readonly distribution: string;
  /** What contains the process, if anything does. */
  readonly container: HostFacts["container"];
  readonly layers: readonly HostLayer[];
}

/**
 * Looks at the host and, where that can be, runs a program in a sandbox. On cgroup v2 the process
 * may move itself into a group of its own, as a server does.
 */
export async function hostReport(options: EngineOptions): Promise<HostReport> {
  const uid = process.geteuid?.() ?? -1;
  const isRootless = options.mode === "rootless" || uid !== 0;
  const cgroups = lookForCgroups(options, isRootless);
  const found = cgroups.host;
  const absent = isRootless ? [] : absentNeeds(options);
  const facts = judgeHost(readHost(), absent);
  const proof = await sandboxLayers(options);
  const layers = [
    ...(isRootless ? [] : [capabilityLayer(absent), privilegeLayer(options, uid)]),
    identityLayer(uid, isRootless),
    cgroups.layer,
    ...(found === null ? [] : [killLayer(found), swapLayer(found)]),
    mountLayer(),
    seccompLayer(options),
    ...proof,
  ];
  return {
    kernel: release(),
    arch: arch(),
    uid,
    cgroup: found?.version ?? null,
    distribution: facts.distribution.name,
    container: facts.container,
    layers: mendLayers(layers, facts),
  };
}

/** Capabilities that sandboxes need and the process has not: `CAP_SETUID`. */
function absentNeeds(options: EngineOptions): readonly string[] {
  const { effective, bounding } = ownCapabilities();
  const needed = capabilityMask(neededCapabilities(needsOf(options, bounding)));
  return capabilityNames(needed & ~effective);
}

function capabilityLayer(absent: readonly string[]): HostLayer {
  const ok = absent.length === 0;
  return {
    name: "capabilities",
    ok,
    isRequired: true,
    detail: ok ? "has what sandboxes need" : `lacks ${absent.join(", ")}`,
    fix: ok ? null : `Give the server ${absent.join(", ")} (container: --cap-add)`,
  };
}

/** What `cprg serve` keeps here; this command itself gives up nothing. */
function privilegeLayer(options: EngineOptions, uid: number): HostLayer {
  const base = { name: "server privileges", isRequired: false };
  if (uid !== 0) return { ...base, ok: true, detail: "no root: nothing to give up", fix: null };
  const { effective, bounding } = ownCapabilities();
  const needs = needsOf(options, bounding);
  const keep = capabilityMask(neededCapabilities(needs)) & effective;
  const kept = capabilityNames(keep).join(", ");
  const detail = `a server keeps ${kept || "none"} of ${capabilityNames(effective).length}`;
  const switches = reservingSwitches();
  const fixes = {
    free: null,
    reserved: `With CAP_SYS_ADMIN kept it can do almost all that root can. Unless ${switches.join(", ")} is wanted, turn it over with sysctl`,
    forbidden: "sysctl user.max_user_namespaces=10000",
  };
  return { ...base, ok: needs.userNamespaces === "free", detail, fix: fixes[needs.userNamespaces] };
}

function needsOf({ cgroupParent }: EngineOptions, bounding: bigint): ServerNeeds {
  return serverNeeds(
    { port: 0, ...(cgroupParent === undefined ? {} : { cgroupParent }) },
    bounding,
  );
}

/** As the engine reports it: `shared` is missing, without user namespaces a user has no sandbox. */
function identityLayer(uid: number, isRootless: boolean): HostLayer {
  const base = { name: "identity", ok: false, isRequired: false };
  if (!allowsUserNamespaces()) {
    return {
      ...base,
      isRequired: isRootless,
      detail: isRootless
        ? "user namespaces are forbidden: a user can have no sandbox"
        : "user namespaces are forbidden: process 1 of a sandbox keeps SETUID, SETGID and KILL",
      fix: "sysctl user.max_user_namespaces=10000",
    };
  }
  if (isRootless) {
    return {
      ...base,
      detail: `runs as uid ${uid}: sandboxes have that id too, which does not keep them apart`,
      fix: uid === 0 ? "Use the sandboxes of root: --sandbox ns" : "Start it as root (sudo)",
    };
  }
  const detail =
    "each sandbox has two ids of its own, and not even its process 1 holds a right on the host";
  return { ...base, ok: true, detail, fix: null };
}

interface FoundCgroups {
  readonly host: CgroupHost | null;
  readonly layer: HostLayer;
}

/** A user goes without, unless one is named. */
function lookForCgroups({ cgroupParent }: EngineOptions, isRootless: boolean): FoundCgroups {
  const base = { name: "cgroup", isRequired: !isRootless || cgroupParent !== undefined };
  try {
    const host = findCgroups(cgroupParent === undefined ? {} : { cgroupParent });
    if (isRootless) checkDelegated(host);
    const places =
      host.version === "v2" ? (host.note ?? host.base) : `${host.memory} and ${host.pids}`;
    return { host, layer: { ...base, ok: true, detail: `${host.version}: ${places}`, fix: null } };
  } catch (error) {
    const { message, hint } = CprgError.from(error);
    const instead = base.isRequired ? "" : "; memory and processes are watched instead";
    const detail = `${message}${instead}`;
    return { host: null, layer: { ...base, ok: false, detail, fix: hint ?? null } };
  }
}

function killLayer(host: CgroupHost): HostLayer {
  const ok = host.version === "v2" ? kernelAtLeast(5, 14) : host.unified !== null;
  return {
    name: "cgroup.kill",
    ok,
    isRequired: false,
    detail: ok ? "groups are killed as a whole" : "groups are emptied process by process",
    fix: ok ? null : "Linux 5.14 with cgroup2 mounted, beside v1 or alone",
  };
}

function swapLayer(host: CgroupHost): HostLayer {
  const hasSwap = !/^SwapTotal:\s+0 kB$/m.test(readFileSync("/proc/meminfo", "utf8"));
  const isCounted =
    host.version === "v2"
      ? readCount(host.base, "memory.swap.current") !== null
      : readCount(host.memory, "memory.memsw.usage_in_bytes") !== null;
  const ok = !hasSwap || isCounted;
  return {
    name: "swap",
    ok,
    isRequired: false,
    detail: hasSwap
      ? `the host swaps; sandboxes ${isCounted ? "do not" : "may"}`
      : "the host has no swap",
    fix: ok ? null : "Boot with swapaccount=1, or turn swap off",
  };
}

function mountLayer(): HostLayer {
  const ok = kernelAtLeast(5, 12);
  return {
    name: "mount_setattr",
    ok,
    isRequired: false,
    detail: ok
      ? "mounts become read-only with everything beneath them in one call"
      : "mounts are made read-only one by one",
    fix: ok ? null : "Linux 5.12",
  };
}

function seccompLayer({ seccomp }: EngineOptions): HostLayer {
  const { mode, detail, fix } = seccompSupport();
  if (seccomp?.isOn === false) {
    return {
      name: "seccomp",
      ok: false,
      isRequired: false,
      detail: "turned off: system calls are not filtered",
      fix: "Unset CPRG_SECCOMP",
    };
  }
  return { name: "seccomp", ok: mode === "notify", isRequired: mode === null, detail, fix };
}

/** The proof: everything above together, for one program; and which interpreters run in it. */
async function sandboxLayers(options: EngineOptions): Promise<readonly HostLayer[]> {
  const base = { name: "sandbox", isRequired: true };
  try {
    const engine = await openLocalEngine({ ...options, log: options.log ?? silentLog });
    try {
      const lease = await engine.open(await engine.reserve(DEFAULT_LIMITS));
      const result = await lease.invoke({ executable: "/bin/true" });
      await lease.release();
      const ok = result.status === 0;
      const detail = ok ? `ran a program in mode ${engine.mode}` : `status ${result.status}`;
      return [
        ...heldLayers(engine.layers),
        { ...base, ok, detail, fix: null },
        ...(await interpreterLayers(engine.languages)),
      ];
    } finally {
      await engine.close();
    }
  } catch (error) {
    const { message, hint } = CprgError.from(error);
    return [{ ...base, ok: false, detail: message, fix: hint ?? null }];
  }
}
