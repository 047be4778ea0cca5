/**
 * What a sandbox uses that is in no group, watched from outside. Looks at short intervals; above the
 * limit of memory it kills the largest process, as the kernel would in a group. What programs hold
 * without mapping it (sockets, pipes, unmapped memfds) is not seen: SECURITY.md says so.
 */

import { startTimer, type Timer } from "../core/timer.ts";
import { type ProcessSize, proportionalOf, residentOf } from "./process-tree.ts";

/** Between two looks: a program can fill some 50 MiB in it. */
const LOOK_MS = 20;
/** Looks between two exact ones, which cost far more, while the quick sum stays above the limit. */
const EXACT_EVERY = 10;

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
  #looksAbove = 0;
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
      this.#looksAbove = 0;
      this.#noteMemory(sizes);
      return;
    }
    this.#looksAbove += 1;
    if (this.#looksAbove % EXACT_EVERY !== 1) return;
    // Pages that several processes share were counted for each.
    const exact = this.#measure(proportionalOf);
    this.#noteMemory(exact);
    if (this.#killLargest(exact)) this.#looksAbove = 0;
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

  /** Whether it had to. */
  #killLargest(sizes: Map<number, ProcessSize>): boolean {
    const kills = this.#kills;
    const bySize = [...sizes].sort(
      ([, left], [, right]) => right.anonymousBytes - left.anonymousBytes,
    );
    for (const [pid] of bySize) {
      if (this.#total(sizes) <= this.#options.memoryBytes) break;
      sizes.delete(pid);
      this.#kills += 1;
      this.#options.kill(pid);
    }
    return this.#kills > kills;
  }
}
