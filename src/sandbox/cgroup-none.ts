/**
 * What stands in for groups where there are none. What belongs together is told by ancestors: each
 * program has a keeper between it and process 1 (ffi/keeper.c), which adopts what the program
 * leaves. Process 1 does the killing, because it can do it at one instant; a watch bounds memory,
 * and a resource limit the number of processes.
 */

import { closeSync } from "node:fs";
import { CprgError } from "../core/errors.ts";
import type { ExecGroup, ExecLink, GroupLimits, GroupTree, SandboxGroups } from "./cgroup.ts";
import { kernelAtLeast } from "./kernel.ts";
import type { Native } from "./native.ts";
import {
  childrenOf,
  cpuUsOf,
  descendantsOf,
  imageOf,
  innerPid,
  isAlive,
  tasksOf,
} from "./process-tree.ts";
import { encodeKill } from "./spawn-plan.ts";
import { TreeWatch } from "./tree-watch.ts";

const SIGKILL = 9;
const MIB = 1024 * 1024;
/** Before Linux 5.14 every task of the user counts: room for what the user starts meanwhile. */
const HOST_TASKS_SPARE = 256;

/** How no groups are made. */
export interface NoTreeOptions {
  /** Whether programs have the server's own id: its tasks then count with theirs. */
  readonly isIdShared: boolean;
}

/** A tree of no groups. */
export function openNoTree(native: Native, options: NoTreeOptions): GroupTree {
  return {
    createSandbox: async (_name, limits) => new NoGroups(native, { ...options, limits }),
    close: () => Promise.resolve(),
  };
}

class NoGroups implements SandboxGroups {
  readonly #native: Native;
  readonly #limits: GroupLimits;
  readonly #isIdShared: boolean;
  readonly #execs = new Set<KeptExec>();
  #watch: TreeWatch | null = null;
  readonly hasMemoryLimit = false;
  readonly launchDirFd = -1;
  readonly launchFds: readonly number[] = [];

  constructor(native: Native, options: NoTreeOptions & { readonly limits: GroupLimits }) {
    this.#native = native;
    this.#limits = options.limits;
    this.#isIdShared = options.isIdShared;
  }

  prepare(): void {}

  async createExec(initPid: number, link: ExecLink): Promise<ExecGroup> {
    const exec: KeptExec = new KeptExec(initPid, link, () => this.#forget(exec));
    this.#execs.add(exec);
    this.#watch ??= this.#newWatch(initPid, link);
    this.#watch.start();
    return exec;
  }

  /** Process 1 and a keeper for each program have the program's id too, where there is only one. */
  taskLimit(): number {
    const { pids } = this.#limits;
    if (!this.#isIdShared) return pids;
    if (kernelAtLeast(5, 14)) return pids + 1 + this.#execs.size;
    return tasksOf(process.geteuid?.() ?? -1) + pids + HOST_TASKS_SPARE;
  }

  memoryBytes(): number | null {
    return this.#watch?.memoryBytes ?? null;
  }

  memoryPeakBytes(): number | null {
    return this.#watch?.memoryPeakBytes || null;
  }

  oomKills(): number {
    return this.#watch?.kills ?? 0;
  }

  pids(): number | null {
    return this.#watch?.tasks ?? null;
  }

  pidsPeak(): number | null {
    return this.#watch?.tasksPeak || null;
  }

  pidsRefused(): number {
    return this.#watch?.looksFull ?? 0;
  }

  cpuUs(): number {
    return [...this.#execs].reduce((sum, exec) => sum + exec.cpuUs(), 0);
  }

  launched(): void {}

  remove(): Promise<void> {
    this.#watch?.stop();
    return Promise.resolve();
  }

  #forget(exec: KeptExec): void {
    this.#execs.delete(exec);
    if (this.#execs.size === 0) this.#watch?.stop();
  }

  #newWatch(initPid: number, { filesShare }: ExecLink): TreeWatch {
    const { mem_mb, pids, disk_mb } = this.#limits;
    return new TreeWatch({
      memoryBytes: mem_mb * MIB,
      tasks: pids,
      processes: () => programsBeneath(initPid),
      fileBytes: () => filesShare() * disk_mb * MIB,
      kill: (pid) => this.#kill(pid, initPid),
    });
  }

  /** The number may be another process's by now: judged again once it is held. */
  #kill(pid: number, initPid: number): void {
    const pidfd = this.#native.pidfd(pid);
    if (pidfd === null) return;
    if (descendantsOf(initPid).includes(pid)) this.#native.signal(pidfd, SIGKILL);
    closeSync(pidfd);
  }
}

/** One program with its keeper, and what programs that have ended left to process 1. */
class KeptExec implements ExecGroup {
  readonly #initPid: number;
  readonly #link: ExecLink;
  readonly #onRemoved: () => void;
  /** Pid of the keeper as process 1 sees it, 0 while unknown. */
  #keeper = 0;
  #cpuUs = 0;
  readonly fds: readonly number[] = [];
  readonly isKept = true;

  constructor(initPid: number, link: ExecLink, onRemoved: () => void) {
    this.#initPid = initPid;
    this.#link = link;
    this.#onRemoved = onRemoved;
  }

  sent(): void {}

  started(keeper: number): void {
    this.#keeper = keeper;
  }

  processes(): readonly number[] {
    const image = imageOf(this.#initPid);
    const children = childrenOf(this.#initPid);
    const keepers = children.filter((pid) => this.#isKeeper(pid));
    // A child of process 1 that runs another program has lost its keeper.
    const strays = children.filter((pid) => imageOf(pid) !== image && isAlive(pid));
    const beneath = [...keepers, ...strays].flatMap(descendantsOf);
    return [...strays, ...beneath].filter(isAlive);
  }

  /**
   * Whether process 1 has children of its own program alone: whatever dies leaves its children there
   * before it can be seen dead, so a zombie means as much as the living. The list can miss one when
   * another ends while it is read (proc_pid_task_tid_children(5)), hence twice.
   */
  isEmpty(): boolean {
    const image = imageOf(this.#initPid);
    const isOwn = (pid: number): boolean => imageOf(pid) === image && !this.#isKeeper(pid);
    return [1, 2].every(() => childrenOf(this.#initPid).every(isOwn));
  }

  /** Process 1 may be too busy to take it: whoever waits for the end asks again. */
  kill(): void {
    try {
      this.#link.channel.trySend(encodeKill(this.#link.id), []);
    } catch (error) {
      // Without process 1 there is nothing left to kill.
      if (!CprgError.is(error)) throw error;
    }
  }

  pidsRefused(): number {
    return 0;
  }

  /** What lives now and what has been waited for; it falls when a parent waits for nobody. */
  cpuUs(): number {
    const keepers = childrenOf(this.#initPid).filter((pid) => this.#isKeeper(pid));
    const all = keepers.flatMap((pid) => [pid, ...descendantsOf(pid)]);
    const nowUs = all.reduce((sum, pid) => sum + cpuUsOf(pid), 0);
    this.#cpuUs = Math.max(this.#cpuUs, nowUs);
    return this.#cpuUs;
  }

  remove(): Promise<void> {
    this.#onRemoved();
    return Promise.resolve();
  }

  #isKeeper(pid: number): boolean {
    return this.#keeper !== 0 && innerPid(pid) === this.#keeper;
  }
}

/** Everything beneath process 1 that is no part of it. */
function programsBeneath(initPid: number): number[] {
  const image = imageOf(initPid);
  return descendantsOf(initPid).filter((pid) => imageOf(pid) !== image);
}
