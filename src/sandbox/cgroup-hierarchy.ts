/** The cgroup hierarchies that are mounted here, and the server's own group in each. */

import { join } from "node:path";
import { CprgError } from "../core/errors.ts";

/** A v1 host, or one with both. Directories are the groups under which ours are made. */
export interface V1Host {
  readonly version: "v1" | "hybrid";
  readonly memory: string;
  readonly cpu: string;
  readonly pids: string;
  readonly cpuacct: string | null;
  /** CPUs that the group around ours may use: the kernel refuses to promise more. */
  readonly cpuCoresMax: number;
  /** The cgroup2 side, where it can kill. */
  readonly unified: string | null;
}

/** A host whose controllers are on v2. */
export interface V2Host {
  readonly version: "v2";
  readonly base: string;
  /** Why `base` is not the server's own group, where it is not. */
  readonly note: string | null;
}

/** What this host has. */
export type CgroupHost = V1Host | V2Host;

/** One mounted hierarchy. */
export interface Hierarchy {
  readonly version: 1 | 2;
  readonly controllers: readonly string[];
  readonly mountPoint: string;
  /** The server's own group in it, or null where it is outside of what is mounted. */
  readonly own: string | null;
}

/** Reads the hierarchies out of /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)). */
export function parseHierarchies(mountinfo: string, selfCgroup: string): readonly Hierarchy[] {
  const paths = new Map<string, string>();
  for (const line of selfCgroup.split("\n")) {
    const match = /^\d+:([^:]*):(.*)$/.exec(line);
    if (match?.[1] !== undefined && match[2] !== undefined) paths.set(match[1], match[2]);
  }
  const found: Hierarchy[] = [];
  for (const line of mountinfo.split("\n")) {
    const [left = "", right = ""] = line.split(" - ");
    const [, , , root = "/", mountPoint = ""] = left.split(" ").map(unescapeOctal);
    const [type = "", , options = ""] = right.split(" ");
    if (type !== "cgroup" && type !== "cgroup2") continue;
    const names = type === "cgroup2" ? [] : options.split(",");
    const path = ownPath(paths, names);
    found.push({
      version: type === "cgroup2" ? 2 : 1,
      controllers: names,
      mountPoint,
      own: path === null ? null : withinMount(path, root, mountPoint),
    });
  }
  return found;
}

function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

function ownPath(paths: ReadonlyMap<string, string>, controllers: readonly string[]) {
  if (controllers.length === 0) return paths.get("") ?? null;
  for (const [names, path] of paths) {
    if (names !== "" && names.split(",").every((name) => controllers.includes(name))) return path;
  }
  return null;
}

function withinMount(path: string, root: string, mountPoint: string): string | null {
  if (path.startsWith("/..")) return null;
  const beneath = root === "/" ? path : path.slice(root.length);
  if (root !== "/" && path !== root && !path.startsWith(`${root}/`)) return null;
  // The group that is mounted itself is its mount point, without a slash at the end.
  return beneath === "/" || beneath === "" ? mountPoint : join(mountPoint, beneath);
}

/** The error for a named group that is not there. */
export function noSuchGroup(directory: string): CprgError {
  return new CprgError("failed_precondition", `Cannot use the group ${directory}: not a group`, {
    reason: "CGROUP",
    hint: "CPRG_CGROUP names a group that exists in every hierarchy: make it first",
  });
}

/** The directory that an operator's name of a group means in a hierarchy. */
export function namedGroup({ mountPoint }: Hierarchy, parent: string): string {
  const relative = parent.startsWith(`${mountPoint}/`) ? parent.slice(mountPoint.length) : parent;
  return join(mountPoint, relative.replace(/^\/sys\/fs\/cgroup(?=\/|$)/, ""));
}
