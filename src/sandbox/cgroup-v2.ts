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
  hasGroupFile,
  makeGroupAside,
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
import { closeAll } from "./descriptors.ts";
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
    createSandbox: (name, limits) => V2Sandbox.make(native, join(own, name), limits),
    close: async () => {
      await removeGroup(own);
      removeSharedGroup(parent);
    },
  };
}

/** What bounds process 1 and the programs together. */
function limitSandbox(directory: string, limits: GroupLimits): void {
  setLimit(directory, "memory.max", String(limits.mem_mb * MIB));
  // Absent where the kernel has no swap.
  if (hasGroupFile(directory, "memory.swap.max")) setLimit(directory, "memory.swap.max", "0");
  const quotaUs = Math.max(CPU_QUOTA_US_LEAST, Math.round(limits.cpu_cores * CPU_PERIOD_US));
  setLimit(directory, "cpu.max", `${quotaUs} ${CPU_PERIOD_US}`);
  writeGroup(directory, "cgroup.subtree_control", "+memory +pids");
}

/** What bounds the programs alone. */
function limitPrograms(run: string, limits: GroupLimits): void {
  setLimit(run, "pids.max", String(limits.pids));
  writeGroup(run, "cgroup.subtree_control", "+memory");
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

  /** Makes its groups; when one cannot be made, none is left. */
  static async make(native: Native, directory: string, limits: GroupLimits): Promise<V2Sandbox> {
    try {
      await makeGroupAside(directory);
      limitSandbox(directory, limits);
      const inner = ["init", "run"].map((name) => join(directory, name));
      await Promise.all(inner.map(makeGroupAside));
      limitPrograms(join(directory, "run"), limits);
      return new V2Sandbox(native, directory);
    } catch (error) {
      await removeGroup(directory).catch(() => undefined);
      throw error;
    }
  }

  private constructor(native: Native, directory: string) {
    this.#native = native;
    this.#directory = directory;
    this.#run = join(directory, "run");
    this.launchDirFd = openGroup(join(directory, "init"));
    this.#fds.push(this.launchDirFd);
  }

  launched(): void {
    closeAll(this.#fds);
  }

  prepare(): void {
    this.#execs.prepare();
  }

  createExec(): Promise<ExecGroup> {
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
    await this.#execs.close();
    await removeGroup(this.#directory);
  }
}
