/** Encodes what goes to process 1: the root plan, then requests (ffi/cprg.h). */

import { CprgError } from "../core/errors.ts";
import {
  ABI,
  BOUNDS,
  FLAG,
  MessageBuilder,
  PLAN,
  PLAN_STEP,
  REQUEST,
  REQUEST_AT,
  RLIMIT_AT,
  SIZES,
} from "./layout.ts";

/** One step that builds the root; `op` and `flags` as in layout.ts. */
export interface PlanStep {
  readonly op: number;
  /** Absolute, in the new root; what is never visible has none. */
  readonly target?: string;
  /** A path, a link's target, mount options, or a file's bytes. */
  readonly source?: string | Uint8Array;
  readonly mode?: number;
  readonly flags?: number;
}

/** Everything that process 1 needs to build the sandbox. */
export interface Plan {
  /** CLONE_NEW* flags. */
  readonly unshare: number;
  readonly idProgram: number;
  readonly idMap: number;
  readonly steps: readonly PlanStep[];
  /** Host directory that the new root is mounted on, in the sandbox's own mount namespace. */
  readonly scratch: string;
  readonly rootOptions: string;
  readonly hostname: string;
  readonly workspace: string;
}

/** The first message. */
export function encodePlan(plan: Plan): Uint8Array {
  const message = new MessageBuilder(SIZES.plan);
  message.u32(PLAN.abi, ABI);
  message.u32(PLAN.unshare, plan.unshare);
  message.u32(PLAN.idProgram, plan.idProgram);
  message.u32(PLAN.idMap, plan.idMap);
  message.u32(PLAN.stepCount, plan.steps.length);
  const steps = message.reserve(plan.steps.length * SIZES.planStep, 8);
  message.u32(PLAN.steps, steps);
  plan.steps.forEach((step, index) => {
    encodeStep(message, step, steps + index * SIZES.planStep);
  });
  message.u32(PLAN.scratch, message.text(plan.scratch));
  message.u32(PLAN.rootOptions, message.text(plan.rootOptions));
  message.u32(PLAN.hostname, message.text(plan.hostname));
  message.u32(PLAN.workspace, message.text(plan.workspace));
  return message.finish();
}

function encodeStep(message: MessageBuilder, step: PlanStep, at: number): void {
  message.u32(at + PLAN_STEP.op, step.op);
  message.u32(at + PLAN_STEP.flags, step.flags ?? 0);
  message.u32(at + PLAN_STEP.mode, step.mode ?? 0);
  const { source, target } = step;
  if (target !== undefined) message.u32(at + PLAN_STEP.target, message.text(target));
  if (source === undefined) return;
  if (typeof source === "string") {
    message.u32(at + PLAN_STEP.source, message.text(source));
    message.u32(at + PLAN_STEP.sourceLength, Buffer.byteLength(source));
  } else {
    message.u32(at + PLAN_STEP.source, message.raw(source));
    message.u32(at + PLAN_STEP.sourceLength, source.length);
  }
}

/** A resource of setrlimit(2) with both of its limits. */
export interface Rlimit {
  readonly resource: number;
  readonly soft: number;
  readonly hard: number;
}

/** One filter compiled for both answers to what it traps; init takes what the kernel has. */
export interface FilterPrograms {
  readonly notify: Uint8Array | null;
  readonly kill: Uint8Array;
}

/** A program to start. */
export interface ExecRequest {
  readonly id: number;
  readonly argv: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  readonly directory: string;
  readonly isNullStdin: boolean;
  /** Standard input is a terminal, which becomes the controlling one. */
  readonly isTerminal: boolean;
  readonly cgroupCount: number;
  /** Whether a keeper stands between process 1 and the program. */
  readonly isKept: boolean;
  readonly rlimits: readonly Rlimit[];
  readonly umask: number;
  readonly oomScoreAdj: number;
  /** The system call filter, or null for none. */
  readonly filter: FilterPrograms | null;
}

/** A message that starts a program. @throws CprgError `invalid_argument` beyond a bound */
export function encodeExec(request: ExecRequest): Uint8Array {
  const variables = Object.entries(request.variables);
  if (request.argv.length + variables.length > BOUNDS.args) {
    throw new CprgError(
      "invalid_argument",
      `Cannot start a program with more than ${BOUNDS.args} arguments and variables`,
    );
  }
  for (const [name] of variables) {
    if (name !== "" && !name.includes("=")) continue;
    throw new CprgError("invalid_argument", `Cannot use variable "${name.slice(0, 64)}": bad name`);
  }
  const message = new MessageBuilder(SIZES.request);
  message.u32(REQUEST_AT.type, REQUEST.exec);
  message.u32(REQUEST_AT.id, request.id);
  const nullStdin = request.isNullStdin ? FLAG.nullStdin : 0;
  const terminal = request.isTerminal ? FLAG.terminal : 0;
  const keeper = request.isKept ? FLAG.keeper : 0;
  message.u32(REQUEST_AT.flags, nullStdin | terminal | keeper);
  message.u32(REQUEST_AT.cgroupCount, request.cgroupCount);
  message.u32(REQUEST_AT.umask, request.umask);
  message.u32(REQUEST_AT.oomScoreAdj, request.oomScoreAdj);
  encodeRlimits(message, request.rlimits);
  message.u32(REQUEST_AT.path, pathText(message, request.directory));
  message.u32(REQUEST_AT.argc, request.argv.length);
  message.u32(REQUEST_AT.argv, texts(message, request.argv));
  message.u32(REQUEST_AT.envc, variables.length);
  const pairs = variables.map(([name, value]) => `${name}=${value}`);
  message.u32(REQUEST_AT.envp, texts(message, pairs));
  if (request.filter !== null) encodeFilter(message, request.filter);
  return message.finish();
}

function encodeFilter(message: MessageBuilder, { notify, kill }: FilterPrograms): void {
  const append = (program: Uint8Array): number => {
    const at = message.reserve(0, 8);
    message.raw(program);
    return at;
  };
  if (notify !== null) {
    message.u32(REQUEST_AT.notify, append(notify));
    message.u32(REQUEST_AT.notifyLength, notify.length);
  }
  message.u32(REQUEST_AT.kill, append(kill));
  message.u32(REQUEST_AT.killLength, kill.length);
}

function encodeRlimits(message: MessageBuilder, rlimits: readonly Rlimit[]): void {
  const table = message.reserve(rlimits.length * SIZES.rlimit, 8);
  message.u32(REQUEST_AT.rlimitCount, rlimits.length);
  message.u32(REQUEST_AT.rlimits, table);
  rlimits.forEach(({ resource, soft, hard }, index) => {
    const at = table + index * SIZES.rlimit;
    message.u32(at + RLIMIT_AT.resource, resource);
    message.u64(at + RLIMIT_AT.soft, soft);
    message.u64(at + RLIMIT_AT.hard, hard);
  });
}

/** An array of offsets of strings. */
function texts(message: MessageBuilder, values: readonly string[]): number {
  const table = message.reserve(values.length * 4, 4);
  values.forEach((value, index) => {
    message.u32(table + 4 * index, message.text(value));
  });
  return table;
}

function pathText(message: MessageBuilder, path: string): number {
  if (Buffer.byteLength(path) >= BOUNDS.pathBytes) {
    throw new CprgError(
      "invalid_argument",
      `Cannot use a path of more than ${BOUNDS.pathBytes - 1} bytes`,
    );
  }
  return message.text(path);
}

/** A message that signals an exec's main process. */
export function encodeSignal(id: number, signal: number): Uint8Array {
  const message = new MessageBuilder(SIZES.request);
  message.u32(REQUEST_AT.type, REQUEST.signal);
  message.u32(REQUEST_AT.id, id);
  message.u32(REQUEST_AT.value, signal);
  return message.finish();
}

/** A message that kills everything of an exec, and what ended execs left. */
export function encodeKill(id: number): Uint8Array {
  const message = new MessageBuilder(SIZES.request);
  message.u32(REQUEST_AT.type, REQUEST.kill);
  message.u32(REQUEST_AT.id, id);
  return message.finish();
}

/** A transfer of a path, in (`unpack`) or out (`pack`), or its removal. */
export interface TransferRequest {
  readonly id: number;
  readonly type: "pack" | "unpack" | "remove";
  readonly path: string;
  /** Into an existing directory, entry by entry. */
  readonly isMerge: boolean;
}

/** A message that starts a transfer. */
export function encodeTransfer(request: TransferRequest): Uint8Array {
  const message = new MessageBuilder(SIZES.request);
  message.u32(REQUEST_AT.type, REQUEST[request.type]);
  message.u32(REQUEST_AT.id, request.id);
  message.u32(REQUEST_AT.flags, request.isMerge ? FLAG.merge : 0);
  message.u32(REQUEST_AT.umask, 0o022);
  message.u32(REQUEST_AT.path, pathText(message, request.path));
  return message.finish();
}
