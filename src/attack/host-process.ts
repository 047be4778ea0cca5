/** Processes as the host's /proc shows them: what is asked about a sandbox is asked here. */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** A process of the host. */
export interface HostProcess {
  readonly pid: number;
  readonly parent: number;
  /** In clock ticks since boot: with the pid it names one process (proc_pid_stat(5)). */
  readonly startTime: string;
}

/** Fields of proc_pid_stat(5), counted from the one after the name. */
const STATE = 0;
const PARENT = 1;
const START_TIME = 19;

/** @returns null when it is gone, or dead and only waits for its parent */
function lookAt(pid: number): HostProcess | null {
  const stat = readProcess(pid, "stat");
  if (stat === null) return null;
  // The name is in parentheses and may hold anything, parentheses too.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[STATE] === "Z" || fields[STATE] === "X") return null;
  return { pid, parent: Number(fields[PARENT]), startTime: fields[START_TIME] ?? "" };
}

/**
 * Every living descendant of a process. In a pid namespace orphans go to process 1, never past it,
 * so what a sandbox ever started is beneath the process that made it.
 */
export function descendants(root: number): readonly HostProcess[] {
  const children = new Map<number, HostProcess[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const found = lookAt(Number(name));
    if (found === null) continue;
    const siblings = children.get(found.parent);
    if (siblings === undefined) children.set(found.parent, [found]);
    else siblings.push(found);
  }
  const below: HostProcess[] = [];
  const visit = (pid: number): void => {
    for (const child of children.get(pid) ?? []) {
      below.push(child);
      visit(child.pid);
    }
  };
  visit(root);
  return below;
}

/**
 * The programs among a sandbox's processes, the one with a pid of its own namespace first: not
 * process 1, and not what stands between it and that program.
 *
 * @param insidePid the pid that the program itself sees
 */
export function programsAmong(
  all: readonly HostProcess[],
  insidePid: number,
): readonly HostProcess[] {
  const main = all.find(({ pid }) => pidInside(pid) === insidePid);
  const above = new Set<HostProcess>();
  let child = main;
  while (child !== undefined) {
    const { parent } = child;
    child = all.find(({ pid }) => pid === parent);
    if (child !== undefined) above.add(child);
  }
  const others = all.filter((process) => process !== main && !above.has(process));
  return main === undefined ? others : [main, ...others];
}

/** The last of NSpid is the pid in the innermost namespace (proc_pid_status(5)). */
function pidInside(pid: number): number {
  return Number(processStatus(pid)["NSpid"]?.split(/\s+/).at(-1));
}

/** Whether it still lives, and its number was not given to another. */
export function isAlive({ pid, startTime }: HostProcess): boolean {
  return lookAt(pid)?.startTime === startTime;
}

/** A file of /proc/PID; null when the process is gone or forbids it. */
export function readProcess(pid: number, name: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    // Both answers mean the same to whoever asks: nothing can be said of it.
    return null;
  }
}

/** Fields of /proc/PID/status by name (proc_pid_status(5)); empty when it is gone. */
export function processStatus(pid: number): Readonly<Record<string, string>> {
  const lines = (readProcess(pid, "status") ?? "").split("\n");
  return Object.fromEntries(
    lines.flatMap((line) => {
      const match = /^(\w+):\s*(.*)$/.exec(line);
      return match?.[1] === undefined ? [] : [[match[1], (match[2] ?? "").trim()]];
    }),
  );
}

/** Where a link of /proc/PID leads; null when the process is gone or forbids it. */
export function processLink(pid: number, name: string): string | null {
  try {
    return readlinkSync(`/proc/${pid}/${name}`);
  } catch {
    // As readProcess().
    return null;
  }
}

/** Descriptors of a process, with what each is; null when it is gone or forbids it. */
export function processDescriptors(pid: number): Readonly<Record<string, string>> | null {
  try {
    const names = readdirSync(`/proc/${pid}/fd`);
    return Object.fromEntries(names.map((name) => [name, processLink(pid, `fd/${name}`) ?? ""]));
  } catch {
    // As readProcess().
    return null;
  }
}
