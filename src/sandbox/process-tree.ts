/**
 * The processes beneath process 1 of a sandbox, and what they use, read from the host's /proc: what
 * stands in for the files of a group where there is none. Anything may end while it is read; what
 * has ended counts as nothing.
 */

import { readdirSync, readFileSync, statSync } from "node:fs";

/** Processes beneath one that are looked at: above the largest limit of processes. */
const PROCESSES_MAX = 65_536;
/** Clock ticks in a second, as /proc counts (proc(5): sysconf(_SC_CLK_TCK), 100 everywhere). */
const TICKS_PER_SECOND = 100;
/** Fields of /proc/PID/stat, counted from `state` (proc_pid_stat(5)). */
const FIELD = {
  state: 0,
  parent: 1,
  flags: 6,
  cpuFirst: 11,
  cpuLast: 14,
  threads: 17,
  environmentEnd: 48,
} as const;
/** Among the flags: a thread of the kernel (PF_KTHREAD of linux/sched.h). */
const KERNEL_THREAD = 0x0020_0000;

/** Host pids of the children of a process; none once it has ended. */
export function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      numbers(readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8")),
    );
  } catch (error) {
    return isWithoutLists(error) ? childrenBySearch(pid) : [];
  }
}

/** Everything beneath a process, without itself. */
export function descendantsOf(pid: number): number[] {
  const found = new Set<number>();
  const waiting = [pid];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    for (const child of childrenOf(at)) {
      if (found.has(child) || found.size >= PROCESSES_MAX) continue;
      found.add(child);
      waiting.push(child);
    }
  }
  return [...found];
}

/** The pid of a process in its innermost namespace, or null when it has ended. */
export function innerPid(pid: number): number | null {
  const status = textOf(`/proc/${pid}/status`) ?? "";
  const last = /^NSpid:.*?(\d+)$/m.exec(status)?.[1];
  return last === undefined ? null : Number(last);
}

/**
 * The program file of a process, by device and inode: a program chooses the path of its file, also
 * one that is in memory alone. Empty for a zombie, and where it may not be read.
 */
export function imageOf(pid: number): string {
  try {
    const { dev, ino } = statSync(`/proc/${pid}/exe`, { bigint: true });
    return `${dev}:${ino}`;
  } catch {
    // It has ended, or hides it.
    return "";
  }
}

/** Whether a process still runs, or one of its threads does. */
export function isAlive(pid: number): boolean {
  const fields = statOf(pid);
  if (fields === null) return false;
  const isDead = fields[FIELD.state] === "Z" || fields[FIELD.state] === "X";
  return !isDead || Number(fields[FIELD.threads]) > 1;
}

/**
 * Whether a program has no place for its environment. Every program gets one at the end of its
 * execve(2), an empty one too; until then its memory is new and holds none.
 */
export function isWithoutEnvironment(pid: number): boolean {
  const fields = statOf(pid);
  if (fields === null || (Number(fields[FIELD.flags]) & KERNEL_THREAD) !== 0) return false;
  return fields[FIELD.environmentEnd] === "0";
}

/** Processes and threads. */
export function threadsOf(pid: number): number {
  return Number(statOf(pid)?.[FIELD.threads] ?? 0);
}

/** CPU time of a process and of the children that it has waited for, in microseconds. */
export function cpuUsOf(pid: number): number {
  const ticks = statOf(pid)
    ?.slice(FIELD.cpuFirst, FIELD.cpuLast + 1)
    .reduce((sum, field) => sum + Number(field), 0);
  return ((ticks ?? 0) * 1e6) / TICKS_PER_SECOND;
}

/** Memory and tasks of one process. */
export interface ProcessSize {
  /** Its own: heap, stack, what it has changed of files. */
  readonly anonymousBytes: number;
  /** In files of memory and between processes, as far as it is mapped. */
  readonly sharedBytes: number;
  /** Processes and threads: itself, or more. */
  readonly tasks: number;
}

/** What a process has in memory; pages of several processes count for each of them. */
export function residentOf(pid: number): ProcessSize {
  const status = memoryStatusOf(pid);
  return {
    anonymousBytes: kibibytes(status, "RssAnon") + kibibytes(status, "VmSwap"),
    sharedBytes: kibibytes(status, "RssShmem"),
    tasks: Number(/^Threads:\s+(\d+)$/m.exec(status)?.[1] ?? 0),
  };
}

/** The same with each page divided among those that map it, where that may be read. */
export function proportionalOf(pid: number): ProcessSize {
  const resident = residentOf(pid);
  const rollup = textOf(`/proc/${pid}/smaps_rollup`);
  // Neither where it may not be read, nor of a process that has lost its main thread.
  if (rollup === null || !rollup.includes("Pss_Anon:")) return resident;
  return {
    tasks: resident.tasks,
    anonymousBytes: kibibytes(rollup, "Pss_Anon") + kibibytes(rollup, "SwapPss"),
    sharedBytes: kibibytes(rollup, "Pss_Shmem"),
  };
}

/**
 * The status that tells the memory. Of a process whose main thread has ended, that is another
 * thread's: the main one has given its share of the memory back, and its status is silent about it.
 */
function memoryStatusOf(pid: number): string {
  const status = textOf(`/proc/${pid}/status`) ?? "";
  if (status.includes("\nRssAnon:") || !isAlive(pid)) return status;
  const others = threadIdsOf(pid).map((thread) => textOf(`/proc/${pid}/task/${thread}/status`));
  return others.find((other) => other?.includes("\nRssAnon:")) ?? status;
}

function threadIdsOf(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    // It has ended.
    return [];
  }
}

/** Tasks of a user on this whole host: what RLIMIT_NPROC counts before Linux 5.14. */
export function tasksOf(uid: number): number {
  const own = everyPid().filter((pid) =>
    new RegExp(`^Uid:\\s+${uid}\\s`, "m").test(textOf(`/proc/${pid}/status`) ?? ""),
  );
  return own.reduce((sum, pid) => sum + threadsOf(pid), 0);
}

/** Lists of children are an option of the kernel (CONFIG_PROC_CHILDREN). */
function isWithoutLists(error: unknown): boolean {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") return false;
  return textOf(`/proc/self/task/${process.pid}/children`) === null;
}

function childrenBySearch(parent: number): number[] {
  return everyPid().filter((pid) => Number(statOf(pid)?.[FIELD.parent]) === parent);
}

function everyPid(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** The fields from `state` on: a name before them can hold anything. */
function statOf(pid: number): readonly string[] | null {
  const text = textOf(`/proc/${pid}/stat`);
  return text === null ? null : text.slice(text.lastIndexOf(")") + 2).split(" ");
}

function kibibytes(text: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1] ?? 0) * 1024;
}

function numbers(text: string): number[] {
  return text
    .split(" ")
    .filter((word) => word !== "")
    .map(Number);
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // It has ended.
    return null;
  }
}
