/**
 * Watches one exec against its limits: the clock, the CPU counter of its group, the kernel's counts
 * of refused processes and memory kills, and, by sampling, the space of the writable file system.
 * Says what was hit, each limit once; ending the exec is its owner's business.
 */

import { availableParallelism } from "node:os";
import type { LimitName, Limits } from "../core/limits.ts";
import type { LimitHit } from "../core/outcome.ts";
import { startTimer, type Timer } from "../core/timer.ts";
import type { ExecNotice } from "../provider/contract.ts";
import type { ExecGroup, SandboxGroups } from "./cgroup.ts";
import type { FileSystemSpace, Native } from "./native.ts";

/** Between two notices of usage. */
const SAMPLE_MS = 500;
/** Least time between two looks at the CPU counter. */
const CPU_CHECK_MS_LEAST = 20;
/** Share of a file system that counts as full: the last blocks can be out of a writer's reach. */
const FULL_SHARE = 0.99;
const MIB = 1024 * 1024;

/** What is watched. */
export interface WatchOptions {
  readonly native: Native;
  readonly sandbox: SandboxGroups;
  readonly group: ExecGroup;
  readonly limits: Limits;
  /** A descriptor in the writable file system, -1 once the sandbox is being removed. */
  workspaceFd(): number;
  /** What had been counted before the exec was asked for. */
  readonly before: Tally;
  notify(notice: Exclude<ExecNotice, { type: "output" }>): void;
  /** Wall or CPU time is used up: called once. */
  onTimeUp(reason: "wall_limit" | "cpu_limit"): void;
}

/** Counts of a sandbox's group, which only rise. */
export interface Tally {
  readonly oomKills: number;
  readonly pidsRefused: number;
}

/** The counts of a sandbox in which nothing has run. */
export const NOTHING_COUNTED: Tally = { oomKills: 0, pidsRefused: 0 };

/** The counts now. */
export function tallyOf(groups: SandboxGroups): Tally {
  return { oomKills: groups.oomKills(), pidsRefused: groups.pidsRefused() };
}

/** What was used, from the counters. */
export interface Counters {
  /**
   * Processes that the kernel killed for memory since the exec was asked for: its own, or all of the
   * sandbox where the kernel does not tell them apart.
   */
  readonly oomKills: number;
  /** All of the sandbox, process 1 too. */
  readonly sandboxOomKills: number;
  readonly cpuUs: number;
  readonly memoryPeakBytes: number | null;
  readonly pidsPeak: number | null;
}

/** The watch over one exec, from its start until `finish`. */
export class LimitWatch {
  readonly #options: WatchOptions;
  readonly #hits = new Map<LimitName, LimitHit>();
  readonly #startedMs = performance.now();
  readonly #timers = new Set<Timer>();
  #pidsMost: number | null = null;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** Starts the timers. */
  start(): void {
    const { limits } = this.#options;
    this.#later(limits.wall_seconds * 1000, () => {
      const observed = (performance.now() - this.#startedMs) / 1000;
      this.hit("wall_seconds", { observed: round(observed), sampled: false });
      this.#options.onTimeUp("wall_limit");
    });
    this.#later(this.#cpuDelayMs(0), () => this.#checkCpu());
    this.#later(SAMPLE_MS, () => this.#sample());
  }

  /** Notes that a limit was hit and tells the reader, once. */
  hit(limit: LimitName, seen: Pick<LimitHit, "observed" | "sampled">): void {
    if (this.#hits.has(limit)) return;
    const hit: LimitHit = { limit, value: this.#options.limits[limit], ...seen };
    this.#hits.set(limit, hit);
    this.#options.notify({ type: "limit", hit });
  }

  /** Stops the timers, looks a last time, and returns what was used. */
  finish(): Counters {
    for (const timer of this.#timers) timer.clear();
    this.#timers.clear();
    const kills = this.#checkCounters();
    this.#checkDisk();
    const { sandbox, group } = this.#options;
    return {
      ...kills,
      cpuUs: group.cpuUs(),
      memoryPeakBytes: sandbox.memoryPeakBytes(),
      pidsPeak: sandbox.pidsPeak() ?? this.#pidsMost,
    };
  }

  /** Every limit that was hit, in order. */
  get hits(): readonly LimitHit[] {
    return [...this.#hits.values()];
  }

  #later(delayMs: number, action: () => void): void {
    const timer = startTimer(delayMs, () => {
      this.#timers.delete(timer);
      action();
    });
    this.#timers.add(timer);
  }

  /** The earliest time at which the limit can be used up, with every core busy. */
  #cpuDelayMs(usedMs: number): number {
    const { cpu_seconds, cpu_cores } = this.#options.limits;
    const cores = Math.min(cpu_cores, availableParallelism());
    return Math.max(CPU_CHECK_MS_LEAST, (cpu_seconds * 1000 - usedMs) / cores);
  }

  #checkCpu(): void {
    const usedMs = this.#options.group.cpuUs() / 1000;
    if (usedMs < this.#options.limits.cpu_seconds * 1000) {
      this.#later(this.#cpuDelayMs(usedMs), () => this.#checkCpu());
      return;
    }
    this.hit("cpu_seconds", { observed: round(usedMs / 1000), sampled: false });
    this.#options.onTimeUp("cpu_limit");
  }

  #sample(): void {
    const { sandbox, group, notify } = this.#options;
    const pids = sandbox.pids();
    if (pids !== null) this.#pidsMost = Math.max(this.#pidsMost ?? 0, pids);
    notify({
      type: "usage",
      cpuMs: Math.floor(group.cpuUs() / 1000),
      memoryBytes: sandbox.memoryBytes(),
      pids,
    });
    this.#checkCounters();
    this.#checkDisk();
    this.#later(SAMPLE_MS, () => this.#sample());
  }

  #checkCounters(): Pick<Counters, "oomKills" | "sandboxOomKills"> {
    const { sandbox, group, limits, before } = this.#options;
    const now = tallyOf(sandbox);
    const sandboxOomKills = now.oomKills - before.oomKills;
    const oomKills = group.oomKills?.() ?? sandboxOomKills;
    if (oomKills > 0) {
      const peak = sandbox.memoryPeakBytes() ?? limits.mem_mb * MIB;
      this.hit("mem_mb", { observed: Math.ceil(peak / MIB), sampled: !sandbox.hasMemoryLimit });
    }
    if (now.pidsRefused + group.pidsRefused() > before.pidsRefused) {
      this.hit("pids", { observed: limits.pids, sampled: !sandbox.hasMemoryLimit });
    }
    return { oomKills, sandboxOomKills };
  }

  /** Null when the sandbox is gone: nobody awaits a sample, so nothing here may throw. */
  #space(): FileSystemSpace | null {
    try {
      return this.#options.native.statfs(this.#options.workspaceFd());
    } catch {
      return null;
    }
  }

  #checkDisk(): void {
    const { limits } = this.#options;
    const space = this.#space();
    if (space === null) return;
    const used = 1 - space.blocksFree / space.blocks;
    if (used >= FULL_SHARE) {
      this.hit("disk_mb", { observed: round(used * limits.disk_mb), sampled: true });
    }
    const inodesUsed = 1 - space.inodesFree / space.inodes;
    if (inodesUsed >= FULL_SHARE) {
      this.hit("inodes", { observed: Math.round(inodesUsed * limits.inodes), sampled: true });
    }
  }
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
