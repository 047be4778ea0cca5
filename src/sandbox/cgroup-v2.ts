/**
 * Groups on cgroup v2 with its controllers. A group with processes in it cannot pass controllers on
 * (cgroup-v2.rst, "no internal process constraint"), so process 1 sits in `init` and the programs
 * beneath `run`, which carries the limit of processes. Each program's own group is one of the memory
 * controller, so that the kernel counts its kills there and kills it whole (`memory.oom.group`) and
 * nothing else: the limit is the sandbox's, and what it hits is one program of several.
 *
 * The cgroup namespace therefore begins at `init`, and a program reads `/../run/exec-N` as its own
 * group: names of ours, nothing of the host's. It could begin at the sandbox only if process 1 were
 * moved after it was made and controllers were passed on after that, two more moves under a lock of
 * the whole system for each sandbox; a group with processes that passes on threaded controllers
 * alone makes those beneath it unusable (EOPNOTSUPP).
 */

import { join } from "node:path";
import { sharedMemoryBytes } from "./capacity.ts";
import type { ExecGroup, GroupLimits, GroupTree, SandboxGroups, TreeOptions } from "./cgroup.ts";
import {
  closeAll,
  hasGroupFile,
  makeGroup,
  makeInstanceGroup,
  openGroup,
  readCount,
  readKeyed,
  removeGroup,
  removeSharedGroup,
  setLimit,
  writeGroup,
} from "./cgroup-files.ts";
import type { V2Host } from "./cgroup-hierarchy.ts";
import { ExecGroups } from "./exec-groups.ts";
import type { Native } from "./native.ts";
import { unifiedExec } from "./unified-exec.ts";

const MIB = 1024 * 1024;
const CPU_PERIOD_US = 100_000;
const CPU_QUOTA_US_LEAST = 1000;

/** Opens the instance's groups. @throws CprgError when they cannot be made */
export function openV2Tree(native: Native, host: V2Host, options: TreeOptions): GroupTree {
  const parent = join(host.base, "cprg");
  const own = join(parent, options.instance);
  options.onPlaces([own]);
  makeInstanceGroup(parent, own, () => {
    writeGroup(parent, "cgroup.subtree_control", "+memory +pids +cpu");
    writeGroup(parent, "memory.max", String(sharedMemoryBytes()));
  });
  writeGroup(own, "cgroup.subtree_control", "+memory +pids +cpu");
  setLimit(own, "memory.max", String(options.capacity.memMb * MIB));
  setLimit(own, "pids.max", String(options.capacity.pids));
  return {
    createSandbox: (name, limits) => new V2Sandbox(native, join(own, name), limits),
    close: async () => {
      await removeGroup(own);
      removeSharedGroup(parent);
    },
  };
}

class V2Sandbox implements SandboxGroups {
  readonly #native: Native;
  readonly #directory: string;
  readonly #run: string;
  readonly #fds: number[] = [];
  readonly #execs = new ExecGroups((name) =>
    unifiedExec(this.#native, join(this.#run, name), { hasMemory: true }),
  );
  readonly hasMemoryLimit = true;
  readonly launchDirFd: number;
  readonly launchFds: readonly number[] = [];

  constructor(native: Native, directory: string, limits: GroupLimits) {
    this.#native = native;
    this.#directory = directory;
    this.#run = join(directory, "run");
    try {
      makeGroup(directory);
      this.#setLimits(limits);
      this.launchDirFd = openGroup(join(directory, "init"));
      this.#fds.push(this.launchDirFd);
    } catch (error) {
      void removeGroup(directory).catch(() => undefined);
      throw error;
    }
  }

  #setLimits(limits: GroupLimits): void {
    setLimit(this.#directory, "memory.max", String(limits.mem_mb * MIB));
    // Absent where the kernel has no swap.
    if (hasGroupFile(this.#directory, "memory.swap.max")) {
      setLimit(this.#directory, "memory.swap.max", "0");
    }
    const quotaUs = Math.max(CPU_QUOTA_US_LEAST, Math.round(limits.cpu_cores * CPU_PERIOD_US));
    setLimit(this.#directory, "cpu.max", `${quotaUs} ${CPU_PERIOD_US}`);
    writeGroup(this.#directory, "cgroup.subtree_control", "+memory +pids");
    makeGroup(join(this.#directory, "init"));
    makeGroup(this.#run);
    setLimit(this.#run, "pids.max", String(limits.pids));
    writeGroup(this.#run, "cgroup.subtree_control", "+memory");
  }

  launched(): void {
    closeAll(this.#fds);
  }

  prepare(): void {
    this.#execs.prepare();
  }

  createExec(): ExecGroup {
    return this.#execs.take();
  }

  memoryBytes(): number | null {
    return readCount(this.#directory, "memory.current");
  }

  /** Linux 5.19; null before. */
  memoryPeakBytes(): number | null {
    return readCount(this.#directory, "memory.peak");
  }

  oomKills(): number {
    return readKeyed(this.#directory, "memory.events", "oom_kill") ?? 0;
  }

  pids(): number | null {
    return readCount(this.#run, "pids.current");
  }

  pidsPeak(): number | null {
    return readCount(this.#run, "pids.peak");
  }

  pidsRefused(): number {
    return readKeyed(this.#run, "pids.events", "max") ?? 0;
  }

  cpuUs(): number {
    return readKeyed(this.#directory, "cpu.stat", "usage_usec") ?? 0;
  }

  async remove(): Promise<void> {
    closeAll(this.#fds);
    this.#execs.close();
    await removeGroup(this.#directory);
  }
}
