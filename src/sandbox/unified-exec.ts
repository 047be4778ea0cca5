/** The group of one program on cgroup2, beside v1's controllers or with its own: it kills and counts. */

import type { ExecGroup } from "./cgroup.ts";
import {
  closeAll,
  makeGroup,
  openGroupFile,
  readKeyed,
  readPids,
  removeGroup,
} from "./cgroup-files.ts";
import { killUnified } from "./kill-group.ts";
import type { Native } from "./native.ts";

/** An exec whose group is on cgroup2. */
export class UnifiedExec implements ExecGroup {
  readonly #native: Native;
  readonly #directory: string;
  readonly #fds: number[] = [];

  /** @param pids the v1 group of processes that it joins as well, where the limit is on v1 */
  constructor(native: Native, directory: string, pids?: string) {
    this.#native = native;
    this.#directory = directory;
    makeGroup(directory);
    try {
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

  cpuUs(): number {
    return readKeyed(this.#directory, "cpu.stat", "usage_usec") ?? 0;
  }

  remove(): Promise<void> {
    return removeGroup(this.#directory);
  }
}
