/** Limits of one run: names, units, defaults and ceilings, parsed and clamped in one place. */

import { CprgError, invalid } from "./errors.ts";

/** Everything that bounds one run. Units are the names' last word. */
export interface Limits {
  /** Wall-clock time from start to forced end. */
  readonly wall_seconds: number;
  /** CPU time of all processes together, from the cgroup's counter. */
  readonly cpu_seconds: number;
  /** Share of the host's CPUs (cpu.max), fractions allowed. */
  readonly cpu_cores: number;
  /** Memory of all processes and of the writable file system, in MiB (memory.max). */
  readonly mem_mb: number;
  /** Processes and threads (pids.max). */
  readonly pids: number;
  /** Size of the one writable file system, in MiB. It counts as memory. */
  readonly disk_mb: number;
  /** Files and directories of the writable file system. */
  readonly inodes: number;
  /** Largest single file, in MiB (RLIMIT_FSIZE). */
  readonly file_mb: number;
  /** Open descriptors of one process (RLIMIT_NOFILE). */
  readonly open_files: number;
  /** Output kept per stream, in KiB. */
  readonly output_kb: number;
}

/** Ceilings of some limits; a server's hold for the others. */
export type Ceilings = Partial<Limits>;

/** Name of one limit. */
export type LimitName = keyof Limits;

/** How a limit may be set. */
interface LimitRule {
  readonly default: number;
  readonly ceiling: number;
  /** Fractions are meaningful. */
  readonly fraction: boolean;
}

/** The table of contracts: defaults and ceilings. */
export const LIMIT_RULES: Readonly<Record<LimitName, LimitRule>> = {
  wall_seconds: { default: 30, ceiling: 300, fraction: true },
  cpu_seconds: { default: 30, ceiling: 300, fraction: true },
  cpu_cores: { default: 1, ceiling: 4, fraction: true },
  mem_mb: { default: 256, ceiling: 4096, fraction: false },
  pids: { default: 64, ceiling: 1024, fraction: false },
  disk_mb: { default: 128, ceiling: 2048, fraction: false },
  inodes: { default: 16_384, ceiling: 200_000, fraction: false },
  file_mb: { default: 64, ceiling: 2048, fraction: false },
  open_files: { default: 256, ceiling: 4096, fraction: false },
  output_kb: { default: 1024, ceiling: 65_536, fraction: false },
};

/** Names of all limits, in the order of the table. */
export const LIMIT_NAMES = Object.keys(LIMIT_RULES) as readonly LimitName[];

/** The smallest fraction that is accepted; below it a limit would mean "at once". */
export const SMALLEST_FRACTION = 0.01;

/**
 * Longest time that any ceiling may allow, in seconds: a timer of the runtime holds 2^31 - 1 ms, and
 * a longer one fires at once.
 */
export const SECONDS_MAX = 2_147_483;

/** The most that a ceiling may be set to; infinite where nothing bounds it. */
export function ceilingMost(name: LimitName): number {
  return name === "wall_seconds" || name === "cpu_seconds" ? SECONDS_MAX : Number.POSITIVE_INFINITY;
}

/** Defaults as a value. */
export const DEFAULT_LIMITS: Limits = Object.freeze(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, LIMIT_RULES[name].default])),
) as unknown as Limits;

/** Ceilings as a value. */
export const CEILING_LIMITS: Limits = Object.freeze(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, LIMIT_RULES[name].ceiling])),
) as unknown as Limits;

/**
 * Effective limits of a request: missing ones take their default, ones above the ceiling are
 * clamped to it. No ceiling counts for more than {@link ceilingMost}.
 *
 * @param asked what the client sent as `limits`
 * @param ceilings of the server and key
 * @throws CprgError `invalid_argument` naming the field: unknown names, zero, negative, not finite,
 *   not a number, fractions of what has none, or a `disk_mb` that does not fit under `mem_mb`
 */
export function parseLimits(asked: unknown, ceilings: Limits = CEILING_LIMITS): Limits {
  const given = limitsObject(asked);
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(LIMIT_RULES, name)) {
      const shown = name.slice(0, 64);
      throw invalid(
        `limits.${shown}`,
        `Cannot use limit "${shown}": unknown name`,
        `Known limits: ${LIMIT_NAMES.join(", ")}`,
      );
    }
  }
  const effective = {} as Record<LimitName, number>;
  for (const name of LIMIT_NAMES) {
    const value = given[name];
    const ceiling = Math.min(ceilings[name], ceilingMost(name));
    const fallback = Math.min(LIMIT_RULES[name].default, ceiling);
    effective[name] = value === undefined ? fallback : clampLimit(name, value, ceiling);
  }
  fitDisk(effective, given);
  return Object.freeze(effective);
}

function limitsObject(asked: unknown): Record<string, unknown> {
  if (asked === undefined) return {};
  if (typeof asked !== "object" || asked === null || Array.isArray(asked)) {
    throw invalid("limits", "Cannot use limits: expected an object");
  }
  return asked as Record<string, unknown>;
}

function clampLimit(name: LimitName, value: unknown, ceiling: number): number {
  const field = `limits.${name}`;
  const hint = `A number above 0, at most ${ceiling}; the ceiling is set per server ([ceilings] in the configuration) and per key`;
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw invalid(field, `Cannot use ${field}: expected a finite number`, hint);
  }
  if (value <= 0) throw invalid(field, `Cannot use ${field} "${value}": it must be above 0`, hint);
  if (LIMIT_RULES[name].fraction) {
    if (value < SMALLEST_FRACTION) {
      throw invalid(field, `Cannot use ${field} "${value}": below ${SMALLEST_FRACTION}`, hint);
    }
  } else if (!Number.isInteger(value)) {
    throw invalid(field, `Cannot use ${field} "${value}": expected a whole number`, hint);
  }
  return Math.min(value, ceiling);
}

/** tmpfs pages are charged to memory: a disk above it would end in an OOM kill, not in ENOSPC. */
function fitDisk(effective: Record<LimitName, number>, given: Record<string, unknown>): void {
  if (effective.disk_mb <= effective.mem_mb) return;
  if (given["disk_mb"] === undefined) {
    effective.disk_mb = effective.mem_mb;
    return;
  }
  throw new CprgError(
    "invalid_argument",
    `Cannot use limits.disk_mb "${effective.disk_mb}": it must fit under mem_mb (${effective.mem_mb}), because files count as memory`,
    { field: "limits.disk_mb", hint: "Raise limits.mem_mb or lower limits.disk_mb" },
  );
}
