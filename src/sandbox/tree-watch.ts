/**
 * What a sandbox uses that is in no group, watched from outside. Looks at short intervals; above the
 * limit of memory it kills the largest process, as the kernel would in a group. What programs hold
 * without mapping it (sockets, pipes, unmapped memfds) is not seen: SECURITY.md says so.
 */

import { startTimer, type Timer } from "../core/timer.ts";
import { type ProcessSize, proportionalOf, residentOf } from "./process-tree.ts";

/** Between two looks. */
const LOOK_MS = 20;
/** What a program can fill in that time. */
const FILL_BYTES = 50 * 1024 * 1024;
/** Most looks without an exact one, which costs far more, while the quick sum is above the limit. */
const EXACT_EVERY = 10;
/** Exact looks take no more than one part in so many of the time. */
const EXACT_SHARE = 4;

/** What is watched, and what is done. */
export interface TreeWatchOptions {
  readonly memoryBytes: number;
  /** Processes and threads that programs may have together. */
  readonly tasks: number;
  /** Host pids of all programs, now. */
  processes(): readonly number[];
  /** Bytes in the sandbox's file system, now. */
  fileBytes(): number;
  /** Ends one process. */
  kill(pid: number): void;
}

type Sizes = ReadonlyMap<number, ProcessSize>;

/** A watch, from `start` to `stop`. */
export class TreeWatch {
  readonly #options: TreeWatchOptions;
  #timer: Timer | null = null;
  /** Looks that need not be exact. */
  #looksLeft = 0;
  #memoryBytes = 0;
  #memoryPeakBytes = 0;
  #tasks = 0;
  #tasksPeak = 0;
  #kills = 0;
  #looksFull = 0;

  constructor(options: TreeWatchOptions) {
    this.#options = options;
  }

  /** Bytes at the last look that saw a program. */
  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  /** Most bytes at any look. */
  get memoryPeakBytes(): number {
    return this.#memoryPeakBytes;
  }

  /** Processes and threads at that look. */
  get tasks(): number {
    return this.#tasks;
  }

  /** Most of them at any look. */
  get tasksPeak(): number {
    return this.#tasksPeak;
  }

  /** Processes killed so far. */
  get kills(): number {
    return this.#kills;
  }

  /** Looks at which no process more was allowed. */
  get looksFull(): number {
    return this.#looksFull;
  }

  /** Looks from now on; idempotent. */
  start(): void {
    this.#timer ??= startTimer(LOOK_MS, () => {
      this.#timer = null;
      this.look();
      this.start();
    });
  }

  /** Looks no more. */
  stop(): void {
    this.#timer?.clear();
    this.#timer = null;
  }

  /** Looks once, and kills what is too much. */
  look(): void {
    const sizes = this.#measure(residentOf);
    // Between a program's end and its outcome there is nothing to see, and nothing new to say.
    if (sizes.size === 0) return;
    this.#noteTasks(sizes);
    if (this.#total(sizes) <= this.#options.memoryBytes) {
      this.#looksLeft = 0;
      this.#noteMemory(sizes);
      return;
    }
    if (this.#looksLeft > 0) {
      this.#looksLeft -= 1;
      return;
    }
    const before = process.cpuUsage();
    // Pages that several processes share were counted for each.
    const exact = this.#exact();
    this.#noteMemory(exact);
    this.#killLargest(exact);
    this.#looksLeft = this.#looksUntilExact(exact, process.cpuUsage(before));
  }

  /**
   * Looked at twice before anything is killed: between vfork(2) and execve a child has its parent's
   * memory, which then is counted twice.
   */
  #exact(): Map<number, ProcessSize> {
    const first = this.#measure(proportionalOf);
    if (this.#total(first) <= this.#options.memoryBytes) return first;
    const second = this.#measure(proportionalOf);
    return this.#total(second) < this.#total(first) ? second : first;
  }

  /** What is left can not be filled earlier, unless looking would take too much of the time. */
  #looksUntilExact(sizes: Sizes, cost: NodeJS.CpuUsage): number {
    const costMs = (cost.user + cost.system) / 1000;
    const room = Math.max(0, this.#options.memoryBytes - this.#total(sizes));
    const looks = Math.max(room / FILL_BYTES, (costMs * EXACT_SHARE) / LOOK_MS);
    return Math.min(EXACT_EVERY - 1, Math.floor(looks));
  }

  #noteMemory(sizes: Sizes): void {
    this.#memoryBytes = this.#total(sizes);
    this.#memoryPeakBytes = Math.max(this.#memoryPeakBytes, this.#memoryBytes);
  }

  #noteTasks(sizes: Sizes): void {
    this.#tasks = sizes.values().reduce((sum, { tasks }) => sum + tasks, 0);
    this.#tasksPeak = Math.max(this.#tasksPeak, this.#tasks);
    if (this.#tasks >= this.#options.tasks) this.#looksFull += 1;
  }

  #measure(size: (pid: number) => ProcessSize): Map<number, ProcessSize> {
    return new Map(this.#options.processes().map((pid) => [pid, size(pid)]));
  }

  /** Shared memory is in the file system as well, or not: counted once, the larger of the two. */
  #total(sizes: Sizes): number {
    let anonymous = 0;
    let shared = 0;
    for (const size of sizes.values()) {
      anonymous += size.anonymousBytes;
      shared += size.sharedBytes;
    }
    return anonymous + Math.max(shared, this.#options.fileBytes());
  }

  #killLargest(sizes: Map<number, ProcessSize>): void {
    const bySize = [...sizes].sort(
      ([, left], [, right]) => right.anonymousBytes - left.anonymousBytes,
    );
    for (const [pid] of bySize) {
      if (this.#total(sizes) <= this.#options.memoryBytes) break;
      sizes.delete(pid);
      this.#kills += 1;
      this.#options.kill(pid);
    }
  }
}
