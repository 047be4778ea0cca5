/** The capability sets of this process's threads, as the kernel tells them (proc_pid_status(5)). */

import { readdirSync, readFileSync } from "node:fs";

/** The sets of one thread; bit n is capability number n. */
export interface ThreadCapabilities {
  readonly inheritable: bigint;
  readonly permitted: bigint;
  readonly effective: bigint;
  readonly bounding: bigint;
  readonly ambient: bigint;
  readonly noNewPrivs: boolean;
}

/** Reads one `status` file. @throws Error when it lacks a set: nothing may be assumed then */
export function parseThreadCapabilities(status: string): ThreadCapabilities {
  const set = (name: string): bigint => {
    const digits = new RegExp(`^${name}:\\s+([0-9a-f]+)$`, "m").exec(status)?.[1];
    if (digits === undefined) throw new Error(`no ${name} in /proc/self/status`);
    return BigInt(`0x${digits}`);
  };
  return {
    inheritable: set("CapInh"),
    permitted: set("CapPrm"),
    effective: set("CapEff"),
    bounding: set("CapBnd"),
    ambient: set("CapAmb"),
    noNewPrivs: set("NoNewPrivs") === 1n,
  };
}

/** Of every thread that lives. */
export function threadCapabilities(): readonly ThreadCapabilities[] {
  return readdirSync("/proc/self/task").flatMap((thread) => {
    let status: string;
    try {
      status = readFileSync(`/proc/self/task/${thread}/status`, "utf8");
    } catch (error) {
      // A thread that has ended in between has nothing any more.
      if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
      throw error;
    }
    return [parseThreadCapabilities(status)];
  });
}

/** Of this thread. */
export function ownCapabilities(): ThreadCapabilities {
  return parseThreadCapabilities(readFileSync("/proc/self/status", "utf8"));
}

/** Whether nothing beyond a set is held by a thread, or can be gained by an execve of its. */
export function isWithin(thread: ThreadCapabilities, keep: bigint): boolean {
  const { inheritable, permitted, effective, bounding, ambient, noNewPrivs } = thread;
  const held = permitted | effective | bounding;
  return (held & ~keep) === 0n && (inheritable | ambient) === 0n && noNewPrivs;
}
