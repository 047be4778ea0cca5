// What of a server's sandboxes runs on the host, read from /proc and from the cgroup file systems:
// never from what the server says.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Home } from "./cprg.ts";

/** A process of the host, zombies included. */
export interface HostProcess {
  readonly pid: number;
  readonly parent: number;
  /** R, S, Z, … (proc_pid_stat(5)) */
  readonly state: string;
  readonly command: string;
  /** Contents of /proc/PID/cgroup. */
  readonly cgroups: string;
}

/** Every process of the host; one that goes meanwhile is left out. */
export function readProcesses(): HostProcess[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    const stat = readText(`/proc/${name}/stat`);
    const [state = "", parent = "0"] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (state === "") return [];
    const command = readText(`/proc/${name}/cmdline`);
    const cgroups = readText(`/proc/${name}/cgroup`);
    return [{ pid: Number(name), parent: Number(parent), state, command, cgroups }];
  });
}

/** Processes beneath another, and whatever is in a cgroup of the instance. */
export function sandboxProcesses(root: { readonly pid: number; readonly instance: string }) {
  const all = readProcesses();
  const inside = new Set<number>([root.pid]);
  for (let before = -1; before !== inside.size; ) {
    before = inside.size;
    for (const { pid, parent } of all) if (inside.has(parent)) inside.add(pid);
  }
  inside.delete(root.pid);
  return all.filter(({ pid, cgroups }) => inside.has(pid) || cgroups.includes(root.instance));
}

/** Name of the sandbox that a process is in, as its cgroups tell it, or null. */
export function sandboxName(process: HostProcess, instance: string): string | null {
  return new RegExp(`/${instance}/([^/\\s]+)`).exec(process.cgroups)?.[1] ?? null;
}

/** Fields of /proc/PID/status by name, trimmed; empty once the process is gone. */
export function statusFields(pid: number): Readonly<Record<string, string>> {
  return Object.fromEntries(
    readText(`/proc/${pid}/status`)
      .split("\n")
      .map((line) => line.split(":\t"))
      .map(([name = "", value = ""]) => [name, value.trim()]),
  );
}

/** Cgroup directories of an instance, all levels, as its run directory records them. */
export function cgroupDirectories(home: Home, instance: string): string[] {
  const groups = readText(join(home.path, "run/instances", instance, "groups"));
  return groups.split("\n").filter(Boolean).flatMap(directoriesBeneath).toSorted();
}

/** A directory and all beneath it; nothing when it is gone. */
export function directoriesBeneath(directory: string): string[] {
  try {
    const names = readdirSync(directory, { withFileTypes: true });
    const children = names.filter((entry) => entry.isDirectory());
    return [
      directory,
      ...children.flatMap(({ name }) => directoriesBeneath(join(directory, name))),
    ];
  } catch {
    return [];
  }
}

/** A file's text, or nothing once it is gone. */
export function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
