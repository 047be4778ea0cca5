// Control groups read on the host, by what they do: the one place in the tests that knows the names
// of files and directories of both versions (admin-guide/cgroup-v1, admin-guide/cgroup-v2.rst).

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { groups } from "./snapshot.ts";

const TOP = "/sys/fs/cgroup";
/** Whether the controllers are on cgroup v2. */
export const IS_V2 = existsSync(join(TOP, "cgroup.controllers"));

/** Whether there is cgroup v2 at all, with controllers or beside those of v1. */
export const HAS_CGROUP2 = readFileSync("/proc/self/mountinfo", "utf8").includes(" - cgroup2 ");

/** What groups are told to limit. */
export type Controller = "memory" | "cpu" | "pids";

/** What the kernel holds for a sandbox, or for an instance. */
export interface GroupValues {
  readonly memoryMaxBytes: number;
  readonly pidsMax: number;
}

/** The mounted directory of a controller. */
export function hierarchyOf(controller: Controller): string {
  if (IS_V2) return TOP;
  // Where several share one, each has a link to it besides.
  const found = readdirSync(TOP, { withFileTypes: true }).find(
    (each) => each.isDirectory() && each.name.split(",").includes(controller),
  );
  if (found === undefined) throw new Error(`no ${controller} hierarchy`);
  return join(TOP, found.name);
}

/** The mounted directories in which an engine makes groups, each once. */
export function hierarchies(): string[] {
  const unified = join(TOP, "unified");
  const controllers = (["memory", "cpu", "pids"] as const).map(hierarchyOf);
  return [...new Set([...controllers, ...(existsSync(unified) ? [unified] : [])])];
}

/** The group of a sandbox, or of the whole instance, that carries a controller's limit. */
function groupOf(instance: string, controller: Controller, level: RegExp): string {
  const found = groups([instance]).find(
    (path) => level.test(path.split(instance)[1] ?? "") && isIn(path, controller),
  );
  if (found === undefined) throw new Error(`no group for ${controller} in ${instance}`);
  return found;
}

function isIn(path: string, controller: Controller): boolean {
  if (IS_V2) return true;
  const [hierarchy = ""] = path.slice(TOP.length + 1).split("/");
  return hierarchy.split(",").includes(controller);
}

/** Paths of a sandbox's groups beneath its instance's. */
const SANDBOX: Readonly<Record<Controller, RegExp>> = {
  memory: /^\/s\d+$/,
  cpu: /^\/s\d+$/,
  pids: IS_V2 ? /^\/s\d+\/run$/ : /^\/s\d+$/,
};

/** Values of the groups of an instance's one sandbox. */
export function sandboxValues(instance: string): GroupValues & {
  /** Quota and period, in microseconds. */
  readonly cpuMax: readonly [number, number];
} {
  const cpu = groupOf(instance, "cpu", SANDBOX.cpu);
  const cpuMax = IS_V2
    ? read(cpu, "cpu.max").split(" ").map(Number)
    : [Number(read(cpu, "cpu.cfs_quota_us")), Number(read(cpu, "cpu.cfs_period_us"))];
  return {
    ...values(groupOf(instance, "memory", SANDBOX.memory), groupOf(instance, "pids", SANDBOX.pids)),
    cpuMax: [cpuMax[0] ?? 0, cpuMax[1] ?? 0],
  };
}

/** Values of the groups of all sandboxes of an instance together. */
export function instanceValues(instance: string): GroupValues {
  return values(groupOf(instance, "memory", /^$/), groupOf(instance, "pids", /^$/));
}

function values(memory: string, pids: string): GroupValues {
  const file = IS_V2 ? "memory.max" : "memory.limit_in_bytes";
  return { memoryMaxBytes: Number(read(memory, file)), pidsMax: Number(read(pids, "pids.max")) };
}

/** Whether a process is held by all of the three limits of an instance's one sandbox. */
export function isLimited(instance: string, pid: number): boolean {
  return (["memory", "cpu", "pids"] as const).every((controller) =>
    pidsBeneath(groupOf(instance, controller, SANDBOX[controller])).includes(pid),
  );
}

/** Processes of a group and of those in it. */
function pidsBeneath(directory: string): number[] {
  const inside = readdirSync(directory, { withFileTypes: true }).filter((each) =>
    each.isDirectory(),
  );
  return [
    ...read(directory, "cgroup.procs").split("\n").map(Number),
    ...inside.flatMap(({ name }) => pidsBeneath(join(directory, name))),
  ];
}

/** The groups of single programs: what is killed as one. */
export function execGroups(instance: string): string[] {
  return groups([instance]).filter((path) => /\/s\d+(\/run)?\/exec-\d+$/.test(path));
}

/** Groups of sandboxes that are still there. */
export function sandboxGroups(instance: string): string[] {
  return groups([instance]).filter((path) => /\/s\d+/.test(path));
}

function read(directory: string, file: string): string {
  return readFileSync(join(directory, file), "utf8").trim();
}
