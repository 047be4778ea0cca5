/**
 * From what a client asked for to what a sandbox and an exec are started with: every rule that does
 * not depend on how the request came in.
 */

import { invalid } from "../core/errors.ts";
import {
  LIMIT_NAMES,
  LIMIT_RULES,
  type LimitName,
  type Limits,
  parseLimits,
} from "../core/limits.ts";
import { type Placement, placementOf } from "../core/placement.ts";
import {
  checkArgs,
  checkEnv,
  checkedLabels,
  checkTogether,
  graceOf,
  stdinOf,
} from "../core/program-rules.ts";
import { checkCString, shown } from "../core/text-rules.ts";
import type { ExecLimitName, TerminalSize } from "../provider/contract.ts";
import { IDLE_SECONDS, LIFETIME_SECONDS, TERMINAL_SIDE_MAX, type TimeRule } from "./bounds.ts";

/** What a client may ask for; the types are right, nothing else has been checked. */
export interface SandboxRequest {
  readonly limits?: unknown;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly placement?:
    | { readonly labels?: Readonly<Record<string, string>> | undefined }
    | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly idleSeconds?: number | undefined;
  readonly lifetimeSeconds?: number | undefined;
}

/** What a sandbox is opened with. */
export interface SandboxSpec {
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  /** What its worker must have; null: none was asked for. */
  readonly placement: Placement | null;
  /** Limits that were asked for: on a worker that enforces none they cannot be had. */
  readonly askedLimits: readonly LimitName[];
  /** Variables of every exec; never stored. */
  readonly env: Readonly<Record<string, string>>;
  readonly idleSeconds: number;
  readonly lifetimeSeconds: number;
}

/**
 * The spec of a sandbox. What is above a ceiling is lowered to it.
 *
 * @param ceilings of the key or the server
 * @throws CprgError `invalid_argument` naming the field at fault
 */
export function sandboxSpec(request: SandboxRequest, ceilings: Limits): SandboxSpec {
  const env = request.env ?? {};
  checkEnv(env);
  checkTogether({ field: "env", list: [] }, env);
  return {
    limits: parseLimits(request.limits, ceilings),
    labels: checkedLabels(request.labels ?? {}),
    placement: placementOf(request.placement),
    askedLimits: namesOf(request.limits),
    env,
    idleSeconds: timeOf("idle_seconds", request.idleSeconds, IDLE_SECONDS),
    lifetimeSeconds: timeOf("lifetime_seconds", request.lifetimeSeconds, LIFETIME_SECONDS),
  };
}

/** Names of limits that were asked for, as far as they are any. */
export function namesOf(limits: unknown): readonly LimitName[] {
  return LIMIT_NAMES.filter((name) => Object.hasOwn(Object(limits), name));
}

function timeOf(field: string, asked: number | undefined, rule: TimeRule): number {
  if (asked === undefined) return rule.default;
  if (Number.isFinite(asked) && asked >= rule.least) return Math.min(asked, rule.ceiling);
  throw invalid(
    field,
    `Cannot use ${field} "${asked}": not a number of at least ${rule.least}`,
    `Seconds; more than ${rule.ceiling} count as ${rule.ceiling}`,
  );
}

/** What a client may ask to run. */
export interface ExecRequest {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly directory?: string | undefined;
  readonly stdin?: string | undefined;
  readonly stdinBase64?: string | undefined;
  /** Keeps standard input open for more. */
  readonly isInputOpen?: boolean | undefined;
  readonly terminal?: { readonly columns?: number | undefined; readonly rows?: number | undefined };
  readonly limits?: unknown;
  readonly killGraceSeconds?: number | undefined;
}

/** What an exec is started with. */
export interface ExecPlan {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly directory: string | null;
  readonly stdin: Uint8Array | "pipe" | null;
  readonly terminal: TerminalSize | null;
  readonly limits: Limits;
  readonly graceMs: number;
}

/** What an exec takes over from its sandbox. */
export interface ExecFrame extends Pick<SandboxSpec, "limits" | "env" | "lifetimeSeconds"> {
  readonly ceilings: Limits;
}

/** Limits that an exec may have of its own. */
export const EXEC_LIMITS: readonly ExecLimitName[] = ["wall_seconds", "cpu_seconds", "output_kb"];
/** Size of a terminal whose client does not say. */
const SIZE_DEFAULT: TerminalSize = { columns: 80, rows: 24 };
const TERM_DEFAULT = "xterm-256color";

/**
 * The plan of an exec, with effective limits.
 *
 * @throws CprgError `invalid_argument` naming the field at fault
 */
export function execPlan(request: ExecRequest, frame: ExecFrame): ExecPlan {
  const { argv, terminal: asked } = request;
  const terminal = asked === undefined ? null : sizeOf(asked);
  const term = terminal === null ? {} : { TERM: TERM_DEFAULT };
  const env = { ...term, ...frame.env, ...request.env };
  if (argv.length === 0) throw invalid("argv", "Cannot use argv: it is empty");
  if (argv[0] === "") throw invalid("argv[0]", 'Cannot run program "": the name is empty');
  checkArgs("argv", argv);
  checkEnv(env);
  checkTogether({ field: "argv", list: argv }, env);
  if (request.directory !== undefined) checkDirectory(request.directory);
  return {
    argv,
    env,
    directory: request.directory ?? null,
    stdin: terminal === null ? inputOf(request) : noInput(request),
    terminal,
    limits: limitsOf(request.limits, frame, terminal !== null),
    graceMs: graceOf(request.killGraceSeconds) * 1000,
  };
}

/** @throws CprgError `invalid_argument` for a side that is no whole number within the kernel's range */
export function sizeOf({
  columns = SIZE_DEFAULT.columns,
  rows = SIZE_DEFAULT.rows,
}: NonNullable<ExecRequest["terminal"]>): TerminalSize {
  for (const [field, value] of Object.entries({ columns, rows })) {
    if (Number.isInteger(value) && value >= 1 && value <= TERMINAL_SIDE_MAX) continue;
    throw invalid(field, `Cannot use ${field} "${value}": not from 1 to ${TERMINAL_SIDE_MAX}`);
  }
  return { columns, rows };
}

function checkDirectory(directory: string): void {
  checkCString("directory", directory);
  if (directory.startsWith("/") && Buffer.byteLength(directory) < 4096) return;
  throw invalid("directory", `Cannot use directory "${shown(directory)}": not an absolute path`);
}

function inputOf(request: ExecRequest): ExecPlan["stdin"] {
  const base64 = stdinOf(request);
  if (base64 === null) return request.isInputOpen === true ? "pipe" : null;
  if (request.isInputOpen !== true) return Buffer.from(base64, "base64");
  throw invalid(
    "stdin_open",
    "Cannot use stdin_open together with stdin: send the first bytes to …/input",
  );
}

/** A terminal is its own input, and always open. */
function noInput(request: ExecRequest): null {
  if (stdinOf(request) === null) return null;
  throw invalid("stdin", "Cannot use stdin together with tty: send it to …/input");
}

/**
 * A terminal is open for as long as its user likes: without limits of its own its time is the
 * sandbox's lifetime, and its output as much as may be asked for. A ceiling that is lower than the
 * table's is one that somebody set, and holds for it too.
 */
function limitsOf(asked: unknown, frame: ExecFrame, hasTerminal: boolean): Limits {
  const given = (asked ?? {}) as Record<string, unknown>;
  if (typeof asked === "object" && !Array.isArray(asked)) {
    for (const name of Object.keys(given)) {
      if ((EXEC_LIMITS as readonly string[]).includes(name)) continue;
      throw invalid(
        `limits.${shown(name)}`,
        `Cannot use limit "${shown(name)}" for an exec`,
        `An exec has ${EXEC_LIMITS.join(", ")}; the others are its sandbox's`,
      );
    }
  }
  const { limits, ceilings, lifetimeSeconds } = frame;
  const own = parseLimits(asked, ceilings);
  const setCeiling = (name: "wall_seconds" | "cpu_seconds"): number =>
    ceilings[name] < LIMIT_RULES[name].ceiling ? ceilings[name] : Number.POSITIVE_INFINITY;
  const open: Partial<Record<ExecLimitName, number>> = hasTerminal
    ? {
        wall_seconds: Math.min(lifetimeSeconds, setCeiling("wall_seconds")),
        cpu_seconds: Math.min(
          lifetimeSeconds * Math.ceil(limits.cpu_cores),
          setCeiling("cpu_seconds"),
        ),
        output_kb: ceilings.output_kb,
      }
    : {};
  const effective = (name: ExecLimitName): number =>
    given[name] === undefined ? (open[name] ?? limits[name]) : own[name];
  return {
    ...limits,
    wall_seconds: effective("wall_seconds"),
    cpu_seconds: effective("cpu_seconds"),
    output_kb: effective("output_kb"),
  };
}
