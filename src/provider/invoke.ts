/** The one adapter from a lease's `exec` to `invoke`: runs to the end and keeps the tails. */

import { constants } from "node:os";
import { CprgError } from "../core/errors.ts";
import type { Outcome } from "../core/outcome.ts";
import { startTimer } from "../core/timer.ts";
import {
  type Command,
  type CommandResult,
  type Exec,
  type ExecLease,
  type OutputChannel,
  RETAIN_BYTES_DEFAULT,
} from "./contract.ts";

/** Time between SIGTERM and SIGKILL when a command is cancelled or late. */
const KILL_GRACE_MS = 0;

/** Memory is bounded by what is retained, and the end of the output is what must be kept. */
const OUTPUT_KB_UNBOUNDED = Math.floor(Number.MAX_SAFE_INTEGER / 1024);

/**
 * Runs a command.
 *
 * @param variables the environment beneath the command's own
 * @throws CprgError `canceled` or `deadline_exceeded` when it was stopped, by the caller or by the
 *   sandbox's limits, once all of it is gone; what made it impossible to start
 */
export async function invokeThrough(
  lease: Pick<ExecLease, "exec">,
  command: Command,
  variables: Readonly<Record<string, string>>,
): Promise<CommandResult> {
  if (command.signal?.aborted) throw cancelled(command);
  const stop = stopOn(command);
  try {
    return await runUntil(lease, command, { stop, variables });
  } finally {
    stop.dispose();
  }
}

async function runUntil(
  lease: Pick<ExecLease, "exec">,
  command: Command,
  { stop, variables }: { readonly stop: Stop; readonly variables: Command["variables"] },
): Promise<CommandResult> {
  const starting = lease.exec({
    executable: command.executable,
    arguments: command.arguments ?? [],
    ...(command.directory === undefined ? {} : { directory: command.directory }),
    variables: { ...variables, ...command.variables },
    limits: { output_kb: OUTPUT_KB_UNBOUNDED },
    ...(command.stdin === undefined ? {} : { stdin: toBytes(command.stdin) }),
    signal: stop.signal,
  });
  const exec = await starting.catch((error: unknown) => {
    stop.check();
    throw error;
  });
  stop.applyTo(exec);
  const tails = await collect(exec, command);
  const outcome = await exec.outcome;
  stop.check();
  checkTime(outcome, command);
  return {
    status: statusOf(outcome),
    stdout: tails.stdout.text(),
    stderr: tails.stderr.text(),
  };
}

/** A command that its sandbox's own limits ended has no status that would say so. */
function checkTime({ reason, limitsHit }: Outcome, { executable }: Command): void {
  if (reason !== "wall_limit" && reason !== "cpu_limit") return;
  const limit = reason === "wall_limit" ? "wall_seconds" : "cpu_seconds";
  const value = limitsHit.find((hit) => hit.limit === limit)?.value;
  throw new CprgError(
    "deadline_exceeded",
    `The command ${JSON.stringify(executable)} reached limits.${limit}${value === undefined ? "" : ` ${value}`}`,
    { reason: "LIMIT", field: `limits.${limit}`, hint: `Raise limits.${limit} of the sandbox` },
  );
}

function toBytes(text: string | Uint8Array): Uint8Array {
  return typeof text === "string" ? new TextEncoder().encode(text) : text;
}

/** 128 + n for a signal, as shells have it. */
function statusOf(outcome: Outcome): number {
  if (outcome.exitCode !== null) return outcome.exitCode;
  const signals: Readonly<Record<string, number>> = constants.signals;
  const number = outcome.signal === null ? undefined : signals[outcome.signal];
  if (number !== undefined) return 128 + number;
  throw new CprgError(
    "unavailable",
    outcome.error?.message ?? `The command was lost: ${outcome.reason}`,
    { reason: "COMMAND_LOST", ...(outcome.error?.hint ? { hint: outcome.error.hint } : {}) },
  );
}

/** The caller's signal and deadline, from before the start to the end. */
interface Stop {
  /** Aborted when it is to stop. */
  readonly signal: AbortSignal;
  /** From now on a stop, also one that has been asked for, kills this exec. */
  applyTo(exec: Exec): void;
  /** @throws CprgError when it was stopped */
  check(): void;
  dispose(): void;
}

function stopOn(command: Command): Stop {
  const controller = new AbortController();
  let request: { readonly reason: "user" | "wall_limit"; readonly why: CprgError } | null = null;
  let running: Exec | null = null;
  const halt = (reason: "user" | "wall_limit", why: CprgError): void => {
    request ??= { reason, why };
    controller.abort();
    running?.kill(request.reason, { graceMs: KILL_GRACE_MS });
  };
  const onAbort = (): void => halt("user", cancelled(command));
  const timer =
    command.deadlineMs === undefined
      ? null
      : startTimer(command.deadlineMs, () => halt("wall_limit", late(command)));
  if (command.signal?.aborted) onAbort();
  else command.signal?.addEventListener("abort", onAbort, { once: true });
  return {
    signal: controller.signal,
    applyTo: (exec) => {
      running = exec;
      if (request !== null) exec.kill(request.reason, { graceMs: KILL_GRACE_MS });
    },
    check: (): void => {
      if (request !== null) throw request.why;
    },
    dispose: (): void => {
      timer?.clear();
      command.signal?.removeEventListener("abort", onAbort);
    },
  };
}

function cancelled({ executable }: Command): CprgError {
  return new CprgError("canceled", `The command ${JSON.stringify(executable)} was cancelled`);
}

function late({ executable, deadlineMs }: Command): CprgError {
  return new CprgError(
    "deadline_exceeded",
    `The command ${JSON.stringify(executable)} took longer than ${deadlineMs} ms`,
  );
}

async function collect(
  exec: Exec,
  { retain, observe }: Command,
): Promise<Readonly<Record<OutputChannel, Tail>>> {
  const most = retain ?? RETAIN_BYTES_DEFAULT;
  const tails = { stdout: new Tail(most), stderr: new Tail(most) };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  for await (const notice of exec.notices) {
    if (notice.type !== "output") continue;
    tails[notice.channel].push(notice.bytes);
    if (observe === undefined) continue;
    const text = decoders[notice.channel].decode(notice.bytes, { stream: true });
    if (text !== "") observe(notice.channel, text);
  }
  for (const channel of ["stdout", "stderr"] as const) {
    const rest = observe === undefined ? "" : decoders[channel].decode();
    if (rest !== "") observe?.(channel, rest);
  }
  return tails;
}

/** The last bytes of a stream, in memory of about their size. */
class Tail {
  readonly #most: number;
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #isCut = false;

  constructor(most: number) {
    this.#most = most;
  }

  push(bytes: Uint8Array): void {
    this.#parts.push(bytes);
    this.#bytes += bytes.length;
    let first = this.#parts[0];
    while (first !== undefined && this.#bytes - first.length >= this.#most) {
      this.#bytes -= first.length;
      this.#parts.shift();
      this.#isCut = true;
      first = this.#parts[0];
    }
  }

  /** As UTF-8; a character that the cut has split is left out. */
  text(): string {
    const all = Buffer.concat(this.#parts);
    let at = Math.max(0, all.length - this.#most);
    if (this.#isCut || at > 0) {
      const end = Math.min(at + 3, all.length);
      // Continuation bytes (10xxxxxx) at the cut belong to a character that is gone.
      while (at < end && ((all[at] ?? 0) & 0xc0) === 0x80) at += 1;
    }
    return new TextDecoder().decode(all.subarray(at));
  }
}
