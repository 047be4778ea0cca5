/**
 * The exact fix for what a host lacks, for its distribution and for what contains it. Pure: facts and
 * layers in, layers with better fixes out.
 */

import {
  type ContainerNeed,
  containerFix,
  containerNeeds,
  ENGINE_NAMES,
} from "./container-fixes.ts";
import { bootParameter, setSysctl } from "./distribution.ts";
import type { HostFacts } from "./host-facts.ts";
import type { HostLayer } from "./host-layer.ts";

/** Enough for every sandbox that a host can hold. */
export const USER_NAMESPACES = 15_000;

/** Before what no option of a container changes. */
export const AROUND = "On the machine around the container: ";

/** How a layer is mended here; null where nothing is known but the layer's own fix. */
type Mend = (facts: HostFacts, needs: readonly ContainerNeed[]) => string | null;

/**
 * Whether a layer's own fix stays beside the exact one: it says why, and may be about something else
 * than the host. Not where masks over /proc are what the kernel refused (EPERM).
 */
function keepsOwnFix({ name, detail }: HostLayer, { procMasks }: HostFacts): boolean {
  if (name === "cgroup") return true;
  return (
    name === "sandbox" && !(procMasks.length > 0 && detail.includes("no /proc may be mounted"))
  );
}

const MENDS: Readonly<Record<string, Mend>> = {
  capabilities: (facts) =>
    containerFix(["capabilities"], facts) ??
    (facts.init === "systemd"
      ? "In the unit: no User=, and no CapabilityBoundingSet= that leaves out CAP_SYS_ADMIN, CAP_SETUID or CAP_SETGID"
      : null),
  identity: (facts) => {
    const { max, isCloneForbidden, isAppArmorRestricted } = facts.userNamespaces;
    const isForbidden = max === 0 || isCloneForbidden || isAppArmorRestricted;
    return facts.uid === 0 || isForbidden ? mendUserNamespaces(facts) : mendUser(facts);
  },
  cgroup: mendCgroup,
  "cgroup.kill": (facts) =>
    facts.container === null && !facts.cgroup.isV2Mounted ? mountV2(facts) : null,
  swap: (facts) =>
    facts.container === null
      ? `${bootParameter("swapaccount=1", facts.distribution)}; or swapoff -a`
      : `${AROUND}boot with swapaccount=1, or swapoff -a`,
  seccomp: (facts) => {
    if (!facts.isFiltered) return null;
    return (
      containerFix(["filter"], facts) ?? (facts.container === null ? unfilterFix(facts) : null)
    );
  },
  proc: (facts) => containerFix(["proc"], facts),
  confinement: (facts) =>
    facts.confinement === null ? null : containerFix([facts.confinement.by], facts),
  userns: mendUserNamespaces,
  suid_dumpable: ({ container, distribution }) =>
    `${container === null ? "" : AROUND}${setSysctl("fs.suid_dumpable", 0, distribution)}`,
  sandbox: (facts, needs) => containerFix(needs, facts),
};

/** How to start without the filter that a process runs under, where no container put it there. */
export function unfilterFix({ init }: Pick<HostFacts, "init">): string {
  const other = "Start it outside of the program whose filter of system calls it inherits";
  return init === "systemd"
    ? `${SYSTEMD_UNFILTER}; if no unit starts it: ${other.toLowerCase()}`
    : other;
}

/** Each of these puts a filter on a service (systemd.exec(5)). */
const SYSTEMD_UNFILTER =
  "In the unit: remove SystemCallFilter=, SystemCallArchitectures=, RestrictNamespaces=, RestrictAddressFamilies=, LockPersonality= and MemoryDenyWriteExecute=, each of which puts a filter on the server";

/**
 * Puts the exact fix into every layer that is missing, and adds what a container takes away.
 *
 * @param layers as `host.ts` found them
 */
export function mendLayers(layers: readonly HostLayer[], facts: HostFacts): readonly HostLayer[] {
  const lacksCgroup = layers.some(({ name, ok }) => name === "cgroup" && !ok);
  const needs = containerNeeds(facts, { lacksCgroup });
  const proof = layers.findIndex(({ name }) => name === "sandbox");
  const at = proof === -1 ? layers.length : proof;
  const all = [...layers.slice(0, at), ...surroundings(facts), ...layers.slice(at)];
  return all.map((layer) => {
    if (layer.ok) return layer;
    const fix = MENDS[layer.name]?.(facts, needs) ?? null;
    const own = fix === null || keepsOwnFix(layer, facts) ? layer.fix : null;
    const parts = [own, fix].filter((part) => part !== null);
    return { ...layer, fix: parts.length === 0 ? null : parts.join("\n") };
  });
}

/** What something around us takes away; no layer is shown for what is as it should be. */
function surroundings(facts: HostFacts): readonly HostLayer[] {
  const { container, procMasks, confinement, userNamespaces, uid, isSuidDumpable } = facts;
  const { isAppArmorRestricted, isCloneForbidden } = userNamespaces;
  const around = container === null ? "something" : ENGINE_NAMES[container];
  const base = { ok: false, isRequired: false, fix: null };
  return [
    // Root may make them all the same.
    ...(uid === 0 || !(isAppArmorRestricted || isCloneForbidden)
      ? []
      : [
          {
            ...base,
            name: "userns",
            detail: isCloneForbidden
              ? "users may not make user namespaces (kernel.unprivileged_userns_clone)"
              : "AppArmor takes all rights from users' user namespaces (kernel.apparmor_restrict_unprivileged_userns)",
          },
        ]),
    ...(isSuidDumpable
      ? [
          {
            ...base,
            name: "suid_dumpable",
            detail:
              "fs.suid_dumpable=1: what starts a program can be read and traced by it for a moment",
          },
        ]
      : []),
    ...(procMasks.length === 0
      ? []
      : [
          {
            ...base,
            name: "proc",
            detail: `${around} hides parts of /proc (${procMasks.slice(0, 3).join(", ")}…): a sandbox may not have a /proc of its own`,
          },
        ]),
    ...(confinement === null
      ? []
      : [
          {
            ...base,
            name: "confinement",
            detail: `${confinement.by === "apparmor" ? "AppArmor" : "SELinux"} confines the server (${confinement.profile}), and may forbid mounting`,
          },
        ]),
  ];
}

/** How to start as root, which gives sandboxes ids of their own. */
function mendUser(facts: HostFacts): string | null {
  const { family } = facts.distribution;
  return containerFix(["root"], facts) ?? (family === "alpine" ? "Start it as root (doas)" : null);
}

function mendUserNamespaces(facts: HostFacts): string | null {
  const { userNamespaces, distribution, container } = facts;
  if (container !== null && userNamespaces.max > 0) return containerFix(["filter"], facts);
  const where = container === null ? "" : AROUND;
  if (userNamespaces.max === 0) {
    return `${where}${setSysctl("user.max_user_namespaces", USER_NAMESPACES, distribution)}`;
  }
  if (userNamespaces.isCloneForbidden) {
    return `${where}${setSysctl("kernel.unprivileged_userns_clone", 1, distribution)}`;
  }
  if (userNamespaces.isAppArmorRestricted) return appArmorProfile(facts.executable);
  return container === null && facts.isFiltered ? unfilterFix(facts) : null;
}

/**
 * Ubuntu lets named programs alone make user namespaces in which they have rights; a profile for one
 * program is narrower than the sysctl, which lets all (AppArmor's wiki, "unprivileged userns").
 */
export function appArmorProfile(executable: string): string {
  const quoted = JSON.stringify(executable);
  return [
    "cat > /etc/apparmor.d/cprg <<'EOF'",
    "abi <abi/4.0>,",
    "include <tunables/global>",
    `profile cprg ${quoted} flags=(unconfined) {`,
    "  userns,",
    "}",
    "EOF",
    "apparmor_parser -r /etc/apparmor.d/cprg",
  ].join("\n");
}

function mendCgroup(facts: HostFacts): string | null {
  const { cgroup, distribution, container, init, uid } = facts;
  if (cgroup.isMemoryDisabled) {
    const where = container === null ? "" : AROUND;
    // Raspberry Pi OS turns it off, and boots by its firmware.
    const fix = facts.isFirmwareBooted
      ? "append cgroup_enable=memory to the one line of /boot/firmware/cmdline.txt, then reboot"
      : bootParameter("cgroup_enable=memory", distribution);
    return `${where}${fix}`;
  }
  // One that can be written is still root's: a user is told to be given one.
  if (container !== null) {
    return cgroup.isWritable || uid !== 0 ? null : containerFix(["cgroup"], facts);
  }
  if (!cgroup.isV2Mounted && !cgroup.isUnified && init !== "systemd") return mountV2(facts);
  if (init !== "systemd") return null;
  return uid === 0 ? delegateAsRoot() : delegateToUser();
}

function delegateAsRoot(): string {
  return [
    "By hand: systemd-run --scope -p Delegate=yes cprg serve",
    "As a service, in the unit:",
    "[Service]",
    "Delegate=cpu memory pids",
    "DelegateSubgroup=server",
  ].join("\n");
}

/** systemd gives users memory and pids by default, cpu only when told (systemd.resource-control(5)). */
function delegateToUser(): string {
  return [
    "systemd-run --user --scope -p Delegate=yes cprg serve",
    "Once, as root, for the CPU limit:",
    "mkdir -p /etc/systemd/system/user@.service.d",
    "printf '[Service]\\nDelegate=cpu memory pids\\n' > /etc/systemd/system/user@.service.d/cprg.conf",
    "systemctl daemon-reload",
  ].join("\n");
}

function mountV2({ distribution, init }: HostFacts): string {
  if (init === "openrc") {
    return [
      `echo 'rc_cgroup_mode="unified"' >> /etc/rc.conf`,
      "rc-update add cgroups boot",
      "rc-service cgroups restart",
    ].join("\n");
  }
  if (init === "systemd") return bootParameter("systemd.unified_cgroup_hierarchy=1", distribution);
  return "mount -t cgroup2 none /sys/fs/cgroup";
}
