/**
 * What a sandbox sees as its root: the host's programs, read-only, an /etc that is made up, a fresh
 * /proc with holes, six devices, terminals of its own, and one small writable file system behind four directories.
 * Nothing else of the host exists inside.
 */

import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import { BIND, OP } from "./layout.ts";
import type { PlanStep } from "./spawn-plan.ts";

/** Where the program starts. */
export const WORKSPACE = "/workspace";
/** Its home. */
export const HOME = "/home/agent";
/** Its uid and gid inside. */
export const PROGRAM_ID = 1000;
/** Its host name. */
export const HOSTNAME = "sandbox";
/** Where the executable itself is bound, as a runtime for JavaScript and TypeScript. */
export const RUNTIME_PATH = "/opt/cprg/runtime";

/** The directories that are writable, and their mode; one file system is behind all of them. */
export const WRITABLE = [
  { path: WORKSPACE, mode: 0o755, name: "workspace" },
  { path: HOME, mode: 0o755, name: "home" },
  { path: "/tmp", mode: 0o1777, name: "tmp" },
  { path: "/dev/shm", mode: 0o1777, name: "shm" },
] as const;

/** Options of the root itself, which is read-only once it is built. */
export const ROOT_OPTIONS = "mode=0755,size=1m,nr_inodes=1k";

/**
 * Host directory that the new root is mounted on while it is built, in the sandbox's own mount
 * namespace: it is on every host, everyone may pass to it, and nothing beneath it is ever bound.
 */
export const SCRATCH = "/sys";

/** A host path that every sandbox sees, read-only. */
export interface Bind {
  readonly source: string;
  readonly target: string;
}

const READ_ONLY = BIND.readOnly;
const SMALL_FILE_BYTES = 32 * 1024;

const MERGED_USR = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] as const;
const DEVICES = ["null", "zero", "full", "random", "urandom"] as const;
/** Terminals that one sandbox may have open, those of its own programs among them. */
export const TERMINALS_MAX = 64;
const DEVPTS_OPTIONS = `mode=0620,ptmxmode=0666,max=${TERMINALS_MAX}`;
const DEVICE_LINKS = {
  ptmx: "pts/ptmx",
  fd: "/proc/self/fd",
  stdin: "/proc/self/fd/0",
  stdout: "/proc/self/fd/1",
  stderr: "/proc/self/fd/2",
} as const;

/** Host directories and files beneath /etc that programs need and that hold no secret. */
const ETC_BINDS = [
  "/etc/ld.so.cache",
  "/etc/alternatives",
  "/etc/ssl/certs",
  "/etc/pki/ca-trust/extracted",
  "/etc/pki/tls/certs",
  "/etc/crypto-policies",
] as const;
/** The same by name: files of Java beneath /usr are links to here. */
const ETC_BINDS_NAMED = /^java-\d+/;
/** Where Debian's Python has its site customization, which is a link beneath /usr. */
const ETC_PYTHON = /^python3\.\d+$/;
/** The same, when they are small enough to be copied. */
const ETC_COPIES = [
  "/etc/ssl/openssl.cnf",
  "/etc/ssl/cert.pem",
  "/etc/pki/tls/openssl.cnf",
] as const;

const PROC_MASKED = [
  "acpi",
  "asound",
  "interrupts",
  "kcore",
  "key-users",
  "keys",
  "kmsg",
  "latency_stats",
  "pressure",
  "sched_debug",
  "scsi",
  "sysrq-trigger",
  "timer_list",
] as const;
const PROC_READ_ONLY = ["bus", "fs", "irq", "sys"] as const;

const ETC_FILES: Readonly<Record<string, string>> = {
  passwd: [
    "root:x:0:0:root:/root:/usr/sbin/nologin",
    `agent:x:${PROGRAM_ID}:${PROGRAM_ID}:agent:${HOME}:/bin/bash`,
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin",
    "",
  ].join("\n"),
  group: ["root:x:0:", `agent:x:${PROGRAM_ID}:`, "nogroup:x:65534:", ""].join("\n"),
  hosts: `127.0.0.1 localhost ${HOSTNAME}\n::1 localhost ip6-localhost\n`,
  hostname: `${HOSTNAME}\n`,
  "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
};

/** What the engine adds to every root. */
export interface RootOptions {
  readonly binds: readonly Bind[];
  /** The executable, or null where a sandbox could not reach it. */
  readonly runtime: string | null;
}

/** Reads what this host has, once; the steps without those that depend on limits. */
export function hostRootSteps(options: RootOptions): readonly PlanStep[] {
  return [
    ...programs(),
    ...etc(),
    ...proc(),
    ...devices(),
    { op: OP.directory, target: "/run", mode: 0o755 },
    { op: OP.link, target: "/var/tmp", source: "/tmp" },
    ...(options.runtime === null ? [] : [bind(options.runtime, RUNTIME_PATH)]),
    ...checkBinds(options.binds).map(({ source, target }) => bind(source, target)),
  ];
}

/** The steps of the writable file system, to go before the host's. */
export function writableSteps(limits: Pick<Limits, "disk_mb" | "inodes">): readonly PlanStep[] {
  // The root and the four directories are inodes too, and not the program's.
  const inodes = limits.inodes + 1 + WRITABLE.length;
  return [
    { op: OP.data, source: `size=${limits.disk_mb}m,nr_inodes=${inodes},mode=0711` },
    ...WRITABLE.map(({ path, mode, name }) => ({
      op: OP.dataBind,
      target: path,
      source: name,
      mode,
    })),
  ];
}

function bind(source: string, target = source, flags: number = READ_ONLY): PlanStep {
  return { op: OP.bind, target, source, flags };
}

/** /usr, and the links to it or the directories beside it (hier(7), merged /usr). */
function programs(): PlanStep[] {
  const steps = [bind("/usr")];
  for (const name of MERGED_USR) {
    const path = `/${name}`;
    const status = lstatSync(path, { throwIfNoEntry: false });
    if (status?.isSymbolicLink()) {
      steps.push({ op: OP.link, target: path, source: readlinkSync(path) });
    } else if (status?.isDirectory()) {
      steps.push(bind(path));
    }
  }
  return steps;
}

function etc(): PlanStep[] {
  const steps = Object.entries(ETC_FILES).map(([name, text]) => file(`/etc/${name}`, text));
  for (const path of ETC_BINDS) if (existsSync(path)) steps.push(bind(path));
  for (const path of ETC_COPIES) steps.push(...copy(path));
  for (const name of existsSync("/etc") ? readdirSync("/etc") : []) {
    if (ETC_BINDS_NAMED.test(name)) steps.push(bind(`/etc/${name}`));
    if (ETC_PYTHON.test(name)) steps.push(...copy(`/etc/${name}/sitecustomize.py`));
  }
  if (existsSync("/usr/lib/os-release")) {
    steps.push({ op: OP.link, target: "/etc/os-release", source: "/usr/lib/os-release" });
  }
  steps.push(...localTime());
  return steps;
}

function file(target: string, content: string | Uint8Array): PlanStep {
  const source = typeof content === "string" ? Buffer.from(content) : content;
  return { op: OP.file, target, source, mode: 0o644 };
}

function copy(path: string): PlanStep[] {
  if (!existsSync(path)) return [];
  const content = readFileSync(path);
  return [content.length <= SMALL_FILE_BYTES ? file(path, content) : bind(path)];
}

/** A link into /usr/share/zoneinfo stays one; anything else is copied. */
function localTime(): PlanStep[] {
  const path = "/etc/localtime";
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined) return [];
  if (!status.isSymbolicLink()) return copy(path);
  const source = posix.resolve("/etc", readlinkSync(path));
  return source.startsWith("/usr/") ? [{ op: OP.link, target: path, source }] : copy(path);
}

function proc(): PlanStep[] {
  return [
    { op: OP.proc, target: "/proc" },
    ...PROC_MASKED.filter(inProc).map((name) => ({ op: OP.mask, target: `/proc/${name}` })),
    ...PROC_READ_ONLY.filter(inProc).map((name) => ({ op: OP.readOnly, target: `/proc/${name}` })),
  ];
}

/** A sandbox's /proc has the kernel's entries, as the host's does. */
function inProc(name: string): boolean {
  return existsSync(`/proc/${name}`);
}

function devices(): PlanStep[] {
  const flags = BIND.readOnly | BIND.noexec | BIND.device;
  return [
    ...DEVICES.map((name) => bind(`/dev/${name}`, `/dev/${name}`, flags)),
    // Controls whoever opens it, and is nobody else's: tty(4).
    bind("/dev/tty", "/dev/tty", flags),
    { op: OP.devpts, target: "/dev/pts", source: DEVPTS_OPTIONS },
    ...Object.entries(DEVICE_LINKS).map(([name, source]) => ({
      op: OP.link,
      target: `/dev/${name}`,
      source,
    })),
  ];
}

const RESERVED = ["/proc", "/dev", "/sys", "/etc/ssl/private", RUNTIME_PATH];

function isBeneath(path: string, directories: readonly string[]): boolean {
  return directories.some((directory) => path === directory || path.startsWith(`${directory}/`));
}

/** @throws CprgError for a bind that would open the sandbox or hide a part of it */
function checkBinds(binds: readonly Bind[]): readonly Bind[] {
  for (const { source, target } of binds) {
    const isPlain = target.startsWith("/") && posix.normalize(target) === target;
    const isHiding = WRITABLE.some(({ path }) => isBeneath(path, [target]));
    const isTaken = target === "/" || isHiding || isBeneath(target, RESERVED);
    const isSource =
      source.startsWith("/") &&
      posix.normalize(source) === source &&
      source !== "/" &&
      !isBeneath(source, ["/proc", "/sys"]);
    if (isPlain && !isTaken && isSource) continue;
    throw new CprgError("invalid_argument", `Cannot bind "${source}" on "${target}" in a sandbox`, {
      field: "binds",
      hint: "Both are absolute paths without `..` or a trailing slash; /, /proc, /dev and /sys are not allowed, nor what hides a place to write: /workspace, /home/agent, /tmp",
    });
  }
  return binds;
}
