/**
 * What stands in for groups where the operator allows them to be missing. Nothing is limited or
 * counted together; the processes of a sandbox are found by their pid namespace, so an exec that is
 * killed takes the sandbox's other execs with it.
 */

import { closeSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { ExecGroup, GroupTree, SandboxGroups } from "./cgroup.ts";
import type { Native } from "./native.ts";

const SIGKILL = 9;
const SIGSTOP = 19;

/** A tree of no groups. */
export function openNoTree(native: Native): GroupTree {
  return {
    createSandbox: () => new NoGroups(native),
    close: () => Promise.resolve(),
  };
}

class NoGroups implements SandboxGroups {
  readonly #native: Native;
  readonly hasMemoryLimit = false;
  readonly launchDirFd = -1;
  readonly launchFds: readonly number[] = [];

  constructor(native: Native) {
    this.#native = native;
  }

  prepare(): void {}

  createExec(initPid: number): ExecGroup {
    return new NamespaceExec(this.#native, initPid);
  }

  memoryBytes(): null {
    return null;
  }

  memoryPeakBytes(): null {
    return null;
  }

  oomKills(): number {
    return 0;
  }

  pids(): null {
    return null;
  }

  pidsPeak(): null {
    return null;
  }

  pidsRefused(): number {
    return 0;
  }

  cpuUs(): number {
    return 0;
  }

  launched(): void {}

  remove(): Promise<void> {
    return Promise.resolve();
  }
}

/** Everything in the pid namespace of a process 1 but itself. */
class NamespaceExec implements ExecGroup {
  readonly #native: Native;
  readonly #initPid: number;
  readonly fds: readonly number[] = [];

  constructor(native: Native, initPid: number) {
    this.#native = native;
    this.#initPid = initPid;
  }

  sent(): void {}

  processes(): readonly number[] {
    const namespace = namespaceOf(this.#initPid);
    if (namespace === null) return [];
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => pid !== this.#initPid && namespaceOf(pid) === namespace && isAlive(pid));
  }

  isEmpty(): boolean {
    return this.processes().length === 0;
  }

  /** Stops all first, so that what is forked meanwhile is found in the next pass. */
  kill(): void {
    for (const signal of [SIGSTOP, SIGKILL]) {
      for (const pid of this.processes()) this.#send(pid, signal);
    }
  }

  pidsRefused(): number {
    return 0;
  }

  cpuUs(): number {
    return 0;
  }

  remove(): Promise<void> {
    return Promise.resolve();
  }

  #send(pid: number, signal: number): void {
    const pidfd = this.#native.pidfd(pid);
    if (pidfd === null) return;
    if (namespaceOf(pid) === namespaceOf(this.#initPid)) this.#native.signal(pidfd, signal);
    closeSync(pidfd);
  }
}

function namespaceOf(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    // It has ended.
    return null;
  }
}

function isAlive(pid: number): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !/^[ZX]/.test(status.slice(status.lastIndexOf(")") + 2));
  } catch {
    // It has ended.
    return false;
  }
}
