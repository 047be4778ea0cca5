// Everything on the host that a server and its sandboxes can leave behind, as one comparable value.

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { HOST_ID_DIRECTORY } from "../../src/sandbox/ids.ts";
import type { Home } from "./cprg.ts";
import { cgroupDirectories, readText, sandboxProcesses } from "./sandbox-processes.ts";

/** What there is of one server. */
export interface HostSnapshot {
  /** Processes beneath the server or in its groups. */
  readonly processes: readonly string[];
  /** Mounts that the server sees. */
  readonly mounts: readonly string[];
  readonly cgroups: readonly string[];
  /** Host ids that the server holds, by the files that it keeps open for them. */
  readonly ids: readonly string[];
  /** Descriptors of the server by what they are, how often each. */
  readonly descriptors: Readonly<Record<string, number>>;
  /** Paths in the run directory and in the server's temporary directory. */
  readonly files: readonly string[];
  /** Lines of /proc/sysvipc (proc_sysvipc(5)): segments, semaphores, queues. */
  readonly ipc: readonly string[];
}

/** What to look at. */
export interface SnapshotOf {
  readonly home: Home;
  readonly pid: number;
  readonly instance: string;
}

/** Looks now. */
export function hostSnapshot({ home, pid, instance }: SnapshotOf): HostSnapshot {
  const runDir = join(home.path, "run");
  return {
    processes: sandboxProcesses({ pid, instance }).map(
      ({ command, state }) => `${state} ${command}`,
    ),
    mounts: mountsOf(pid),
    cgroups: cgroupDirectories(home, instance),
    ids: readdirSync(`/proc/${pid}/fd`)
      .map((fd) => targetOf(`/proc/${pid}/fd/${fd}`) ?? "")
      .filter((target) => target.startsWith(`${HOST_ID_DIRECTORY}/`)),
    descriptors: descriptorsOf(pid),
    files: [...listAll(runDir), ...listAll(join(home.path, "tmp"))],
    ipc: ["shm", "sem", "msg"].flatMap((kind) => readText(`/proc/sysvipc/${kind}`).split("\n")),
  };
}

/** Mount points: what is counted in a line may change. */
function mountsOf(pid: number): string[] {
  return readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .split("\n")
    .map((line) => line.split(" ").slice(3, 5).join(" "));
}

function listAll(directory: string): string[] {
  try {
    return readdirSync(directory, { recursive: true, encoding: "utf8" })
      .map((name) => join(directory, name))
      .toSorted();
  } catch {
    return [];
  }
}

/** Connections of HTTP clients come and go as they like; every other kind is counted. */
function descriptorsOf(pid: number): Record<string, number> {
  const connections = new Set(
    ["tcp", "tcp6"].flatMap((family) =>
      readText(`/proc/${pid}/net/${family}`)
        .split("\n")
        .map((line) => line.trim().split(/\s+/)[9]),
    ),
  );
  const counts: Record<string, number> = {};
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    const target = targetOf(`/proc/${pid}/fd/${fd}`);
    if (target === null || connections.has(/^socket:\[(\d+)\]$/.exec(target)?.[1])) continue;
    const kind = target.replace(/:\[\d+\]$/, "");
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return Object.fromEntries(Object.entries(counts).toSorted());
}

function targetOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    // Closed in between.
    return null;
  }
}
