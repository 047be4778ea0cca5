/** Limits of one exec, and the resource limits that back them (setrlimit(2)); only ever lowered. */

import { invalid } from "../core/errors.ts";
import { type Limits, SECONDS_MAX } from "../core/limits.ts";
import type { ExecLimitName, ExecSpec } from "../provider/contract.ts";
import { RLIMIT } from "./layout.ts";
import type { Rlimit } from "./spawn-plan.ts";

const MIB = 1024 * 1024;
const STACK_BYTES = 8 * MIB;
const STACK_BYTES_MOST = 64 * MIB;
const MEMLOCK_BYTES = 64 * 1024;
/** Room above the group's limit, so that the group refuses first and counts it. */
const NPROC_SPARE = 64;
const DATA_SPARE_MB = 256;
/** Queued signals of one sandbox: they also count against the server's own limit (`ulimit -i`). */
const SIGPENDING = 128;

/**
 * The sandbox's limits, with what the caller sets for this exec.
 *
 * @throws CprgError `invalid_argument` naming one that is no number above 0, or too long a time
 */
export function execLimits(sandbox: Limits, own: ExecSpec["limits"]): Limits {
  checkTime("wall_seconds", own?.wall_seconds);
  checkTime("cpu_seconds", own?.cpu_seconds);
  checkAbove0("output_kb", own?.output_kb);
  return {
    ...sandbox,
    wall_seconds: own?.wall_seconds ?? sandbox.wall_seconds,
    cpu_seconds: own?.cpu_seconds ?? sandbox.cpu_seconds,
    output_kb: own?.output_kb ?? sandbox.output_kb,
  };
}

function checkTime(name: "wall_seconds" | "cpu_seconds", value: number | undefined): void {
  checkAbove0(name, value);
  if (value === undefined || value <= SECONDS_MAX) return;
  throw invalid(`limits.${name}`, `Cannot use limits.${name} "${value}": above ${SECONDS_MAX}`);
}

function checkAbove0(name: ExecLimitName, value: number | undefined): void {
  if (value === undefined || (Number.isFinite(value) && value > 0)) return;
  throw invalid(`limits.${name}`, `Cannot use limits.${name} "${value}": not a number above 0`);
}

/** What bounds a sandbox besides. */
export interface ExecBounds {
  /** Whether a group limits memory. */
  readonly hasMemoryLimit: boolean;
  /** Tasks that the program's id may have, where no group counts them. */
  readonly tasks?: number;
}

/** Resource limits of the program. */
export function execRlimits(
  limits: Limits,
  { hasMemoryLimit, tasks }: ExecBounds,
): readonly Rlimit[] {
  // Of one process; the group's counter is what decides, so this comes after it.
  const cpu = Math.ceil(limits.cpu_seconds) + 1;
  const rlimits = [
    { resource: RLIMIT.cpu, soft: cpu, hard: cpu + 1 },
    both(RLIMIT.fsize, limits.file_mb * MIB),
    both(RLIMIT.nofile, limits.open_files),
    both(RLIMIT.nproc, tasks ?? limits.pids + NPROC_SPARE),
    // With 0 the kernel still runs a program that core_pattern pipes to; with 1 it does not (core(5)).
    both(RLIMIT.core, 1),
    both(RLIMIT.sigpending, SIGPENDING),
    // POSIX message queues count against the server's own limit, in every sandbox together.
    both(RLIMIT.msgqueue, 0),
    both(RLIMIT.memlock, MEMLOCK_BYTES),
    both(RLIMIT.rtprio, 0),
    { resource: RLIMIT.stack, soft: STACK_BYTES, hard: STACK_BYTES_MOST },
  ];
  return hasMemoryLimit ? rlimits : [...rlimits, both(RLIMIT.data, dataBytes(limits))];
}

/**
 * Of one process, where no group bounds all: above what the watch allows them together, so that it
 * sees and says who took too much, before the program is refused. Runtimes also reserve far more
 * than they use.
 */
function dataBytes({ mem_mb }: Limits): number {
  return (2 * mem_mb + DATA_SPARE_MB) * MIB;
}

function both(resource: number, value: number): Rlimit {
  return { resource, soft: value, hard: value };
}
