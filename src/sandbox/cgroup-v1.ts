/**
 * Groups on cgroup v1, or on a host with both: limits in the v1 hierarchies, and where cgroup2 is
 * mounted beside them (with cgroup.kill, Linux 5.14), its groups kill and count CPU time, for which
 * it needs no controller.
 *
 * Process 1 is in the memory and cpu groups; the group of pids holds the programs only, so that the
 * limit is theirs alone and a full sandbox can still be served. A thread writes `0` to `tasks`:
 * unlike `cgroup.procs` that takes no lock of the whole system, and whoever writes has one thread.
 */

import { dirname, join } from "node:path";
import { sharedMemoryBytes } from "./capacity.ts";
import type { ExecGroup, GroupLimits, GroupTree, SandboxGroups, TreeOptions } from "./cgroup.ts";
import {
  hasGroupFile,
  makeGroupAside,
  makeInstanceGroup,
  openGroup,
  openGroupFile,
  readCount,
  readKeyed,
  removeGroup,
  removeSharedGroup,
  setLimit,
  writeGroup,
} from "./cgroup-files.ts";
import type { V1Host } from "./cgroup-hierarchy.ts";
import { closeAll } from "./descriptors.ts";
import { ExecGroups } from "./exec-groups.ts";
import type { Native } from "./native.ts";
import { cpuacctUs, pidsExec } from "./pids-exec.ts";
import { unifiedExec } from "./unified-exec.ts";

const MIB = 1024 * 1024;
const CPU_PERIOD_US = 100_000;
/** The kernel refuses less. */
const CPU_QUOTA_US_LEAST = 1000;

/** Directories of one level, by what they do. */
interface Places {
  readonly memory: string;
  readonly cpu: string;
  readonly pids: string;
  /** Null: `unified` counts CPU time. */
  readonly cpuacct: string | null;
  readonly unified: string | null;
}

/** What every sandbox of a host shares. */
interface Traits {
  /** The kernel counts swap. */
  readonly hasSwapLimit: boolean;
  readonly cpuCoresMax: number;
}

function beneath(places: Places, name: string): Places {
  const at = (directory: string | null): string | null =>
    directory === null ? null : join(directory, name);
  return {
    memory: join(places.memory, name),
    cpu: join(places.cpu, name),
    pids: join(places.pids, name),
    cpuacct: at(places.cpuacct),
    unified: at(places.unified),
  };
}

/** The directories of a level, each once: controllers may share a hierarchy. */
function directoriesOf(places: Places): string[] {
  return [...new Set(Object.values(places).filter((place): place is string => place !== null))];
}

/** The cap of every instance on this host together. */
function capShared(directory: string, file: string): void {
  writeGroup(directory, file, String(sharedMemoryBytes()));
}

/** Opens the instance's groups. @throws CprgError when they cannot be made */
export function openV1Tree(native: Native, host: V1Host, options: TreeOptions): GroupTree {
  const { memory, cpu, pids, unified, cpuacct } = host;
  const base: Places = { memory, cpu, pids, unified, cpuacct: unified === null ? cpuacct : null };
  const parent = beneath(base, "cprg");
  const own = beneath(parent, options.instance);
  options.onPlaces(directoriesOf(own));
  for (const directory of directoriesOf(own)) {
    const shared = dirname(directory);
    makeInstanceGroup(shared, directory, () => {
      if (shared === parent.memory) capShared(shared, "memory.limit_in_bytes");
    });
  }
  setLimit(own.memory, "memory.limit_in_bytes", String(options.capacity.memMb * MIB));
  setLimit(own.pids, "pids.max", String(options.capacity.pids));
  const traits: Traits = {
    hasSwapLimit: hasGroupFile(own.memory, "memory.memsw.limit_in_bytes"),
    cpuCoresMax: host.cpuCoresMax,
  };
  return {
    createSandbox: (name, limits) =>
      V1Sandbox.make(native, { places: beneath(own, name), traits }, limits),
    close: async () => {
      for (const directory of directoriesOf(own)) await removeGroup(directory);
      for (const directory of directoriesOf(parent)) removeSharedGroup(directory);
    },
  };
}

/** Where a sandbox's groups are, and on what host. */
interface V1Ground {
  readonly places: Places;
  readonly traits: Traits;
}

class V1Sandbox implements SandboxGroups {
  readonly #native: Native;
  readonly #places: Places;
  readonly #traits: Traits;
  readonly #fds: number[] = [];
  readonly #execs = new ExecGroups((name) => this.#makeExec(name));
  readonly hasMemoryLimit = true;
  readonly launchDirFd: number = -1;
  readonly launchFds: readonly number[];

  /** Makes its groups; when one cannot be made, none is left. */
  static async make(native: Native, ground: V1Ground, limits: GroupLimits): Promise<V1Sandbox> {
    const directories = directoriesOf(ground.places);
    const made = await Promise.allSettled(directories.map(makeGroupAside));
    try {
      for (const result of made) if (result.status === "rejected") throw result.reason;
      return new V1Sandbox(native, ground, limits);
    } catch (error) {
      await Promise.allSettled(directories.map((directory) => removeGroup(directory)));
      throw error;
    }
  }

  private constructor(native: Native, { places, traits }: V1Ground, limits: GroupLimits) {
    this.#native = native;
    this.#places = places;
    this.#traits = traits;
    try {
      this.#setLimits(limits);
      if (places.unified !== null) {
        this.launchDirFd = openGroup(places.unified);
        this.#fds.push(this.launchDirFd);
      }
      const entered = new Set([places.memory, places.cpu, places.cpuacct ?? places.cpu]);
      this.launchFds = [...entered].map((directory) => this.#open(directory));
    } catch (error) {
      closeAll(this.#fds);
      throw error;
    }
  }

  #open(directory: string): number {
    const fd = openGroupFile(directory, "tasks");
    this.#fds.push(fd);
    return fd;
  }

  #setLimits(limits: GroupLimits): void {
    const { memory, cpu, pids } = this.#places;
    const bytes = String(limits.mem_mb * MIB);
    setLimit(memory, "memory.limit_in_bytes", bytes);
    // Memory and swap together: none is swapped. Absent where swap accounting is off.
    if (this.#traits.hasSwapLimit) setLimit(memory, "memory.memsw.limit_in_bytes", bytes);
    const cores = Math.min(limits.cpu_cores, this.#traits.cpuCoresMax);
    const quotaUs = Math.max(CPU_QUOTA_US_LEAST, Math.floor(cores * CPU_PERIOD_US));
    setLimit(cpu, "cpu.cfs_quota_us", String(quotaUs));
    setLimit(pids, "pids.max", String(limits.pids));
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

  #makeExec(name: string): Promise<ExecGroup> {
    const { unified, pids, cpuacct } = this.#places;
    return unified === null
      ? pidsExec(this.#native, join(pids, name), cpuacct)
      : unifiedExec(this.#native, join(unified, name), { pids });
  }

  memoryBytes(): number | null {
    return readCount(this.#places.memory, "memory.usage_in_bytes");
  }

  memoryPeakBytes(): number | null {
    return readCount(this.#places.memory, "memory.max_usage_in_bytes");
  }

  oomKills(): number {
    return readKeyed(this.#places.memory, "memory.oom_control", "oom_kill") ?? 0;
  }

  pids(): number | null {
    return readCount(this.#places.pids, "pids.current");
  }

  pidsPeak(): number | null {
    return readCount(this.#places.pids, "pids.peak");
  }

  pidsRefused(): number {
    return readKeyed(this.#places.pids, "pids.events", "max") ?? 0;
  }

  cpuUs(): number {
    const { unified, cpuacct } = this.#places;
    if (unified !== null) return readKeyed(unified, "cpu.stat", "usage_usec") ?? 0;
    return cpuacctUs(cpuacct);
  }

  async remove(): Promise<void> {
    closeAll(this.#fds);
    await this.#execs.close();
    for (const directory of directoriesOf(this.#places)) await removeGroup(directory);
  }
}
