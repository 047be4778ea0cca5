/** The group of one program on cgroup2, beside v1's controllers or with its own: it kills and counts. */

import type { ExecGroup } from "./cgroup.ts";
import {
  closeAll,
  makeGroupAside,
  openGroupFile,
  readKeyed,
  readPids,
  removeGroup,
  setLimit,
} from "./cgroup-files.ts";
import { killUnified } from "./kill-group.ts";
import type { Native } from "./native.ts";

/** Which controllers it is under. */
interface Controllers {
  /** The v1 group of processes that it joins as well, where the limit is on v1. */
  readonly pids?: string;
  /** Whether the memory controller is cgroup2's, and passed on to it. */
  readonly hasMemory?: boolean;
}

/** An exec whose group is on cgroup2. */
export class UnifiedExec implements ExecGroup {
  readonly #native: Native;
  readonly #directory: string;
  readonly #hasMemory: boolean;
  readonly #fds: number[] = [];

  /** Makes the group. @throws CprgError when it cannot be made or a value is not taken */
  static async make(
    native: Native,
    directory: string,
    controllers: Controllers,
  ): Promise<UnifiedExec> {
    await makeGroupAside(directory);
    return new UnifiedExec(native, directory, controllers);
  }

  private constructor(native: Native, directory: string, { pids, hasMemory = false }: Controllers) {
    this.#native = native;
    this.#directory = directory;
    this.#hasMemory = hasMemory;
    try {
      if (hasMemory) setLimit(directory, "memory.oom.group", "1");
      if (pids !== undefined) this.#fds.push(openGroupFile(pids, "tasks"));
      this.#fds.push(openGroupFile(this.#directory, "cgroup.procs"));
    } catch (error) {
      closeAll(this.#fds);
      void this.remove();
      throw error;
    }
  }

  get fds(): readonly number[] {
    return this.#fds;
  }

  sent(): void {
    closeAll(this.#fds);
  }

  processes(): readonly number[] {
    return readPids(this.#directory);
  }

  isEmpty(): boolean {
    return (readKeyed(this.#directory, "cgroup.events", "populated") ?? 0) === 0;
  }

  kill(): void {
    killUnified(this.#native, this.#directory);
  }

  pidsRefused(): number {
    return 0;
  }

  oomKills(): number | null {
    if (!this.#hasMemory) return null;
    return readKeyed(this.#directory, "memory.events", "oom_kill") ?? 0;
  }

  cpuUs(): number {
    return readKeyed(this.#directory, "cpu.stat", "usage_usec") ?? 0;
  }

  remove(): Promise<void> {
    return removeGroup(this.#directory);
  }
}
