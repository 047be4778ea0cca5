/**
 * What the engine wants of control groups, whichever version the host has: a group for each sandbox
 * that carries its limits and counts, and beneath it a group for each exec that can be killed.
 *
 *     <own group>/cprg/<instance>/<sandbox>/…
 *
 * cgroup-v1.ts and cgroup-v2.ts implement it (kernel documentation: admin-guide/cgroup-v1 and
 * admin-guide/cgroup-v2.rst).
 */

import type { Limits } from "../core/limits.ts";
import type { InitChannel } from "./init-channel.ts";

/** Limits that groups carry. */
export type GroupLimits = Pick<Limits, "mem_mb" | "cpu_cores" | "pids" | "disk_mb">;

/** How what stands in for a group reaches the sandbox of an exec. */
export interface ExecLink {
  /** As process 1 knows it. */
  readonly id: number;
  readonly channel: Pick<InitChannel, "trySend">;
  /** How much of the sandbox's file system is in use: 0 to 1. */
  filesShare(): number;
}

/** Caps of all sandboxes of one instance together. */
export interface GroupCapacity {
  readonly memMb: number;
  readonly pids: number;
}

/** How the groups of an instance are made. */
export interface TreeOptions {
  readonly instance: string;
  readonly capacity: GroupCapacity;
  /** Hears where its groups will be, before the first is made: what a reaper removes. */
  onPlaces(directories: readonly string[]): void;
}

/** The groups of one engine instance. */
export interface GroupTree {
  /** @throws CprgError when a group cannot be made or a value is not taken */
  createSandbox(name: string, limits: GroupLimits): Promise<SandboxGroups>;
  /** Removes the instance's groups; the sandboxes' must be gone. */
  close(): Promise<void>;
}

/** The groups of one sandbox. */
export interface SandboxGroups {
  /** A v2 directory to clone process 1 into, or -1. */
  readonly launchDirFd: number;
  /** Descriptors that process 1 writes `0` to. */
  readonly launchFds: readonly number[];
  /** Whether the group limits memory: else the programs' own limits must. */
  readonly hasMemoryLimit: boolean;
  /** Makes the group of the first exec ahead, while there is nothing else to do. */
  prepare(): void;
  /**
   * @param initPid host pid of process 1
   * @throws CprgError when the group cannot be made or a value is not taken
   */
  createExec(initPid: number, link: ExecLink): Promise<ExecGroup>;
  /** Tasks that a program's own limit must allow, where no group counts them. */
  taskLimit?(): number;
  /** Bytes in use now. */
  memoryBytes(): number | null;
  memoryPeakBytes(): number | null;
  /** Processes of this group that the kernel killed for memory, since the group exists. */
  oomKills(): number;
  /** Processes and threads now. */
  pids(): number | null;
  /** Most at once, or null where the kernel does not count it (Linux 6.1). */
  pidsPeak(): number | null;
  /** Times that the limit of processes refused one, since the group exists. */
  pidsRefused(): number;
  /** CPU time of everything in the sandbox, in microseconds. */
  cpuUs(): number;
  /** Closes the descriptors of the launch. */
  launched(): void;
  /** Removes every group, once all in it is dead. @throws CprgError when one stays */
  remove(): Promise<void>;
}

/** The group of one exec. */
export interface ExecGroup {
  /** Descriptors that the exec's first process writes `0` to. */
  readonly fds: readonly number[];
  /** Closes them, once the message that carried them is sent. */
  sent(): void;
  /** Whether its program needs a keeper: there is no group that could be killed. */
  readonly isKept?: boolean;
  /** Its program runs. @param keeper pid of its keeper, as process 1 sees it */
  started?(keeper: number): void;
  /** Host pids of its processes; on v2 without zombies. */
  processes(): readonly number[];
  isEmpty(): boolean;
  /** Sends SIGKILL to everything in it, also to what is being forked. */
  kill(): void;
  /** Times that one of its own was refused, where the kernel counts that here and not above. */
  pidsRefused(): number;
  /** Its processes that the kernel killed for memory; null or absent where it counts the sandbox's. */
  oomKills?(): number | null;
  /** CPU time since the exec began, in microseconds. */
  cpuUs(): number;
  /** Removes the empty group. */
  remove(): Promise<void>;
}
