// What an engine could leave on a host, as one value that is compared before and after.

import { expect } from "bun:test";
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { IdRange } from "../../src/sandbox/ids.ts";
import { listIds } from "../../src/sandbox/ids.ts";
import { paced } from "./pace.ts";

/** Everything that must be the same afterwards. */
export interface Left {
  /** Processes whose real uid is one of the range, or that are children of this process. */
  readonly processes: readonly string[];
  readonly mounts: readonly string[];
  /** Groups of the instances, in every hierarchy. */
  readonly groups: readonly string[];
  /** Network namespaces that a descriptor or process of ours holds. */
  readonly networks: readonly string[];
  /** Own descriptors by what they are, with their number. */
  readonly descriptors: Readonly<Record<string, number>>;
  readonly ipc: readonly string[];
  readonly ids: readonly string[];
  /** Files in the run and data directories, and ours in the temporary one. */
  readonly files: readonly string[];
}

export interface SnapshotDirs {
  readonly run: string;
  readonly data: string;
}

/**
 * Looks at the host.
 *
 * @param instances whose groups count
 */
export function takeSnapshot(
  dirs: SnapshotDirs,
  range: IdRange,
  instances: readonly string[] = [],
): Left {
  return {
    processes: processes(range),
    mounts: mounts(),
    groups: groups(instances),
    networks: networks(range),
    descriptors: descriptors(),
    ipc: ["shm", "sem", "msg"].flatMap((kind) => ipc(kind, range)),
    ids: listIds(join(dirs.run, "ids")),
    files: files(dirs),
  };
}

/** Longest that the runtime may keep its own duplicate of a descriptor whose stream has ended. */
const DUPLICATES_TIMEOUT_MS = paced(5000);

/**
 * Fails, showing the difference, unless everything is as before. Waits for descriptors only: a
 * stream of the runtime reads from a duplicate, which it closes in a later turn.
 */
export async function expectNothingLeft(before: Left, look: () => Left): Promise<void> {
  const deadlineMs = performance.now() + DUPLICATES_TIMEOUT_MS;
  let after = look();
  while (hasMore(after.descriptors, before.descriptors) && performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    after = { ...after, descriptors: look().descriptors };
  }
  // Fewer than before are none left: what the runtime still held then, it has closed since.
  const isLeft = hasMore(after.descriptors, before.descriptors);
  expect(isLeft ? after : { ...after, descriptors: before.descriptors }).toEqual(before);
}

function hasMore(after: Left["descriptors"], before: Left["descriptors"]): boolean {
  return Object.entries(after).some(([what, count]) => count > (before[what] ?? 0));
}

/** Pids of all processes, from the host's /proc. */
export function hostPids(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/**
 * Host pids of what is in sandboxes: processes with an id of the range, or, as a user, those of this
 * user in a pid namespace of their own, without the keepers of programs.
 */
export function pidsOfRange(range: IdRange): number[] {
  const own = process.getuid?.() ?? 0;
  if (own !== 0) return hostPids().filter((pid) => isInside(pid, own));
  return hostPids().filter((pid) => {
    const status = statusOf(pid);
    if (status === undefined || isForeignZombie(status)) return false;
    return status.uid >= range.base && status.uid < range.base + range.count;
  });
}

function isInside(pid: number, own: number): boolean {
  const status = statusOf(pid);
  if (status === undefined || !status.isNested || status.uid !== own) return false;
  const isKeeper = status.name === INIT && statusOf(status.parent)?.name === INIT;
  return !isKeeper && !isForeignZombie(status);
}

/** The name of process 1 and of its keepers. */
const INIT = "cprg-init";

/** Whether it is process 1 of a sandbox. */
export function isInit(pid: number): boolean {
  return statusOf(pid)?.isFirst ?? false;
}

interface Status {
  readonly name: string;
  /** Whether it is in another pid namespace than this process. */
  readonly isNested: boolean;
  /** Whether it is the first one of its namespace. */
  readonly isFirst: boolean;
  readonly uid: number;
  readonly parent: number;
  readonly isZombie: boolean;
}

/** What a server that was killed leaves to the host's process 1, which reaps it when it likes. */
function isForeignZombie({ isZombie, parent }: Status): boolean {
  return isZombie && parent === 1;
}

function statusOf(pid: number): Status | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/status`, "utf8");
    return {
      name: /^Name:\s+(.*)$/m.exec(text)?.[1] ?? "",
      isNested: /^NSpid:\s+\d+\s+\d+/m.test(text),
      isFirst: /^NSpid:.*\t1$/m.test(text),
      uid: Number(/^Uid:\s+(\d+)/m.exec(text)?.[1]),
      parent: Number(/^PPid:\s+(\d+)/m.exec(text)?.[1]),
      isZombie: /^State:\s+Z/m.test(text),
    };
  } catch {
    // It has ended.
    return undefined;
  }
}

function processes(range: IdRange): string[] {
  const own = hostPids().filter((pid) => statusOf(pid)?.parent === process.pid);
  return [...new Set([...own, ...pidsOfRange(range)])].map(
    (pid) => `${statusOf(pid)?.name} ${pid}`,
  );
}

/** Without the numbers of mounts, which are given anew; those of other test processes come and go. */
function mounts(): string[] {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line.includes("cprg") || line.includes(" - tmpfs "))
    .map((line) => line.split(" ").slice(3).join(" "))
    .sort();
}

/** Directories named after an instance, and what is in them, wherever cgroups are mounted. */
export function groups(instances: readonly string[]): string[] {
  const found: string[] = [];
  const visit = (directory: string, isOurs: boolean): void => {
    for (const name of directoriesIn(directory)) {
      const path = join(directory, name);
      const isInside = isOurs || instances.includes(name);
      if (isInside) found.push(path);
      visit(path, isInside);
    }
  };
  visit("/sys/fs/cgroup", false);
  return found.sort();
}

function directoriesIn(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch {
    // Removed in between.
    return [];
  }
}

function networks(range: IdRange): string[] {
  const held = [...pidsOfRange(range).map((pid) => `/proc/${pid}/ns/net`)];
  const own = readdirSync("/proc/self/fd").map((fd) => `/proc/self/fd/${fd}`);
  return [...held, ...own].map(linkOf).filter((target) => target.startsWith("net:"));
}

function descriptors(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fd of readdirSync("/proc/self/fd")) {
    const kind = linkOf(`/proc/self/fd/${fd}`)
      .replace(/:\[\d+\]$/, "")
      .replace(/^\/proc\/\d+\/fd$/, "");
    if (kind !== "") counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return counts;
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // The descriptor of the listing itself.
    return "";
  }
}

function ipc(kind: string, range: IdRange): string[] {
  const [header = "", ...rows] = readFileSync(`/proc/sysvipc/${kind}`, "utf8").trim().split("\n");
  const uidAt = header.trim().split(/\s+/).indexOf("uid");
  return rows.filter((row) => {
    const uid = Number(row.trim().split(/\s+/)[uidAt]);
    return uid >= range.base && uid < range.base + range.count;
  });
}

function files(dirs: SnapshotDirs): string[] {
  const own = [dirs.run, dirs.data].flatMap((directory) => {
    if (statSync(directory, { throwIfNoEntry: false }) === undefined) return [];
    return readdirSync(directory, { recursive: true }).map((name) => join(directory, String(name)));
  });
  const temporary = readdirSync(tmpdir()).filter(
    (name) => name.startsWith(".cprg") || name.startsWith(".bun-"),
  );
  return [...own, ...temporary].sort();
}
