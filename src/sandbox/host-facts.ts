/**
 * What a host is, as far as mending it depends on that: its distribution, what contains it, and what
 * those take away. Files go in as text, so that captured hosts can be judged anywhere.
 */

import { existsSync, readFileSync } from "node:fs";
import { capabilityMask } from "./capability-names.ts";
import { type Distribution, parseDistribution } from "./distribution.ts";

/** What the process is contained in. `kubernetes` wins over the engine beneath it. */
export type ContainerEngine = "docker" | "podman" | "kubernetes" | "lxc" | "nspawn" | "other";

/** Text of files and answers about paths; null or absent for what is not there or not for us. */
export interface RawHost {
  readonly files: Readonly<Record<string, string | null>>;
  readonly paths: readonly string[];
  readonly uid: number;
  /** Where the executable lies. */
  readonly executable: string;
}

/** What is known of a host. */
export interface HostFacts {
  readonly distribution: Distribution;
  readonly container: ContainerEngine | null;
  readonly init: "systemd" | "openrc" | "other";
  readonly uid: number;
  /** Of {@link CONTAINER_CAPABILITIES} and those that the server needs, what is not effective: `SYS_ADMIN`. */
  readonly absentCapabilities: readonly string[];
  readonly executable: string;
  /** Whether kernel parameters are in the firmware's file (Raspberry Pi). */
  readonly isFirmwareBooted: boolean;
  /** Mount points beneath /proc: with them the kernel refuses a new /proc in a user namespace. */
  readonly procMasks: readonly string[];
  /** The profile that forbids mounting, of AppArmor or SELinux; null where none does. */
  readonly confinement: { readonly by: "apparmor" | "selinux"; readonly profile: string } | null;
  /** Whether the process itself runs under a filter of system calls. */
  readonly isFiltered: boolean;
  /** fs.suid_dumpable is 1: the memory of a process that changes ids stays readable (proc_sys_fs(5)). */
  readonly isSuidDumpable: boolean;
  readonly userNamespaces: {
    readonly max: number;
    /** kernel.unprivileged_userns_clone of Debian and Arch is 0. */
    readonly isCloneForbidden: boolean;
    /** kernel.apparmor_restrict_unprivileged_userns of Ubuntu is 1, and no profile lets us. */
    readonly isAppArmorRestricted: boolean;
  };
  readonly cgroup: {
    readonly isV2Mounted: boolean;
    /** Whether v2 has the controllers, and not v1. */
    readonly isUnified: boolean;
    /** Whether a hierarchy is mounted and not read-only. */
    readonly isWritable: boolean;
    /** Whether the kernel was booted without the memory controller (/proc/cgroups). */
    readonly isMemoryDisabled: boolean;
  };
}

/**
 * Capabilities with which the filters of container engines let namespaces be made and ids be mapped
 * (capabilities(7)). What a server keeps of its own is in server-capabilities.ts.
 */
const CONTAINER_CAPABILITIES = ["SETGID", "SETUID", "SYS_ADMIN"] as const;

/** Those that a /proc/self/status does not show as effective, and others that are known to be absent. */
function absentCapabilities(status: string, others: readonly string[]): readonly string[] {
  const effective = BigInt(`0x${/^CapEff:\s+([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  const own = CONTAINER_CAPABILITIES.filter((name) => (effective & capabilityMask([name])) === 0n);
  return [...new Set([...own, ...others.map((name) => name.replace(/^CAP_/, ""))])].sort();
}

/** Files that are read, by path. */
const FILES = [
  "/etc/os-release",
  "/usr/lib/os-release",
  "/proc/self/status",
  "/proc/self/cgroup",
  "/proc/self/mountinfo",
  "/proc/self/attr/current",
  "/proc/1/environ",
  "/proc/cgroups",
  "/run/systemd/container",
  "/proc/sys/user/max_user_namespaces",
  "/proc/sys/kernel/unprivileged_userns_clone",
  "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
  "/proc/sys/fs/suid_dumpable",
] as const;

/** Paths whose being there says something. */
const PATHS = [
  "/.dockerenv",
  "/run/.containerenv",
  "/var/run/secrets/kubernetes.io",
  "/run/systemd/system",
  "/run/openrc",
  "/sys/fs/cgroup/cgroup.controllers",
  "/boot/firmware/cmdline.txt",
] as const;

/** Looks at this host. */
export function readHost(): RawHost {
  return {
    files: Object.fromEntries(FILES.map((path) => [path, readOrNull(path)])),
    paths: PATHS.filter((path) => existsSync(path)),
    uid: process.geteuid?.() ?? -1,
    executable: process.execPath,
  };
}

function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // Absent, or not ours to read: what depends on it is left open.
    return null;
  }
}

/**
 * What follows from them.
 *
 * @param absent capabilities that the server needs and has not, besides those that are looked for here
 */
export function judgeHost(
  { files, paths, uid, executable }: RawHost,
  absent: readonly string[] = [],
): HostFacts {
  const text = (path: (typeof FILES)[number]): string => files[path] ?? "";
  const mounts = parseMounts(text("/proc/self/mountinfo"));
  return {
    distribution: parseDistribution(text("/etc/os-release") || text("/usr/lib/os-release")),
    container: containerOf({ files, paths }),
    init: initOf(paths),
    uid,
    absentCapabilities: absentCapabilities(text("/proc/self/status"), absent),
    executable,
    isFirmwareBooted: paths.includes("/boot/firmware/cmdline.txt"),
    // autofs waits there for the first look at binfmt_misc, on every systemd host.
    procMasks: mounts
      .map(({ target }) => target)
      .filter((target) => /^\/proc\/(?!sys\/fs\/binfmt_misc)/.test(target)),
    confinement: confinementOf(text("/proc/self/attr/current")),
    isFiltered: /^Seccomp:\s*2$/m.test(text("/proc/self/status")),
    isSuidDumpable: text("/proc/sys/fs/suid_dumpable").trim() === "1",
    userNamespaces: {
      max: Number(files["/proc/sys/user/max_user_namespaces"] ?? "0"),
      isCloneForbidden: text("/proc/sys/kernel/unprivileged_userns_clone").trim() === "0",
      isAppArmorRestricted:
        text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").trim() === "1" &&
        !/^\S+ \(unconfined\)/.test(text("/proc/self/attr/current")),
    },
    cgroup: {
      isV2Mounted: mounts.some(({ type }) => type === "cgroup2"),
      isUnified: paths.includes("/sys/fs/cgroup/cgroup.controllers"),
      isWritable: mounts.some(
        ({ type, options }) => /^cgroup2?$/.test(type) && !options.includes("ro"),
      ),
      isMemoryDisabled: /^memory\s+\d+\s+\d+\s+0$/m.test(text("/proc/cgroups")),
    },
  };
}

interface Mount {
  readonly target: string;
  readonly type: string;
  readonly options: readonly string[];
}

/** proc_pid_mountinfo(5). */
function parseMounts(mountinfo: string): readonly Mount[] {
  return mountinfo
    .split("\n")
    .filter((line) => line.includes(" - "))
    .map((line) => {
      const [left = "", right = ""] = line.split(" - ");
      const fields = left.split(" ");
      const options = (fields[5] ?? "").split(",");
      return { target: fields[4] ?? "", type: right.split(" ")[0] ?? "", options };
    });
}

/** Names that engines give themselves: in `container=` of process 1 and in the paths of groups. */
const ENGINE_WORDS: readonly (readonly [RegExp, ContainerEngine])[] = [
  [/\bkubepods/, "kubernetes"],
  [/\blibpod|\bpodman\b/, "podman"],
  [/\bdocker\b|\/docker-/, "docker"],
  [/\blxc\b|\blxc\.payload/, "lxc"],
  [/systemd-nspawn/, "nspawn"],
];

function containerOf({ files, paths }: Pick<RawHost, "files" | "paths">): ContainerEngine | null {
  if (paths.includes("/var/run/secrets/kubernetes.io")) return "kubernetes";
  const groups = files["/proc/self/cgroup"] ?? "";
  if (/\bkubepods/.test(groups)) return "kubernetes";
  if (paths.includes("/run/.containerenv")) return "podman";
  if (paths.includes("/.dockerenv")) return "docker";
  // Only for root; systemd writes the same word where everybody may read it.
  const environment = files["/proc/1/environ"] ?? "";
  const named = /(?:^|\0)container=([^\0]*)/.exec(environment)?.[1];
  const word = named ?? files["/run/systemd/container"]?.trim() ?? "";
  for (const [pattern, engine] of ENGINE_WORDS) if (pattern.test(word)) return engine;
  for (const [pattern, engine] of ENGINE_WORDS) if (pattern.test(groups)) return engine;
  return word === "" ? null : "other";
}

function initOf(paths: readonly string[]): HostFacts["init"] {
  if (paths.includes("/run/systemd/system")) return "systemd";
  return paths.includes("/run/openrc") ? "openrc" : "other";
}

/** `docker-default (enforce)` of AppArmor, `…:container_t:…` of SELinux; `unconfined` is neither. */
function confinementOf(label: string): HostFacts["confinement"] {
  const text = label.replace(/\0/g, "").trim();
  const profile = /^(\S+) \(enforce\)$/.exec(text)?.[1];
  if (profile !== undefined) return { by: "apparmor", profile };
  const type = /^[^:\s]+:[^:\s]+:([^:\s]+)(?::|$)/.exec(text)?.[1];
  return type === undefined || !/^container(?:_\w+)?_t$/.test(type)
    ? null
    : { by: "selinux", profile: type };
}
