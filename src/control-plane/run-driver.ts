/** Drives a runner over a claim that was granted, and says how its task ends. */

import { cutText } from "../bridge/error-text.ts";
import { CprgError } from "../core/errors.ts";
import { checkedJson } from "../core/json-value.ts";
import { REASONS, type Reason } from "../core/reasons.ts";
import type { Json, Task, TaskEnd } from "../core/task.ts";
import { startTimer } from "../core/timer.ts";
import { TASK_RESULT_BYTES_MAX } from "../store/task-rules.ts";
import type { ClaimLink } from "./claim-link.ts";
import type { Runner, RunnerContext } from "./contract.ts";
import { taskView } from "./task-view.ts";
import { WorkerLease } from "./worker-provider.ts";

/** How long a runner may go on after its task was stopped or its worker lost. */
export const RUNNER_STOP_MS_MAX = 5000;
/** Bytes of one note, and notes of one run. */
export const RUNNER_NOTE_BYTES_MAX = 16 * 1024;
export const RUNNER_NOTES_MAX = 10_000;

/** What a runner is driven with. */
export interface RunnerDrive {
  /** Undefined: it was taken away since the task was submitted. */
  readonly runner: Runner | undefined;
  readonly task: Task;
  readonly link: ClaimLink;
  /** Aborted when the task is stopped; aborted here when the claim is lost. */
  readonly stop: AbortController;
  /** How the task ends because it was stopped; null while it is not. */
  stopEnd(): TaskEnd | null;
  /** Keeps a note; the runner does not hear when that fails. */
  note(text: string): Promise<void>;
  /** The end is decided: stops that come from now on are too late. */
  onDecided(): void;
}

type Settled =
  | { readonly type: "result"; readonly value: unknown }
  | { readonly type: "error"; readonly error: unknown }
  | { readonly type: "abandoned" };

/** Resolves with the end when nothing of the claim runs any more; never rejects. */
export async function driveRunner(drive: RunnerDrive): Promise<TaskEnd> {
  const { link, stop } = drive;
  const onLost = (): void => stop.abort(link.over.reason);
  link.over.addEventListener("abort", onLost, { once: true });
  if (link.over.aborted) onLost();
  const settled = await settle(drive);
  const end = endOf(settled, drive);
  drive.onDecided();
  link.over.removeEventListener("abort", onLost);
  await link.release();
  return end;
}

async function settle(drive: RunnerDrive): Promise<Settled> {
  const { runner, stop, link } = drive;
  if (stop.signal.aborted) return { type: "abandoned" };
  const notes = new Notes(drive.note);
  const running = start(runner, contextOf(drive, notes));
  const settled = await Promise.race([running, givenUp(running, { stop: stop.signal, link })]);
  notes.end();
  return settled;
}

async function start(
  runner: Runner | undefined,
  { input, context }: { readonly input: Json; readonly context: RunnerContext },
): Promise<Settled> {
  try {
    if (runner === undefined) {
      throw new CprgError("failed_precondition", `No runner "${context.task.runner}" is set`);
    }
    const running: Promise<unknown> = runner(input, context);
    return { type: "result", value: await running };
  } catch (error) {
    return { type: "error", error };
  }
}

/**
 * Stopped, the programs of the claim die at once, and what the runner awaits of them with it. One
 * that goes on all the same is left behind: it can reach nothing any more.
 */
async function givenUp(
  running: Promise<Settled>,
  { stop, link }: { readonly stop: AbortSignal; readonly link: ClaimLink },
): Promise<Settled> {
  await new Promise<void>((resolve) => {
    stop.addEventListener("abort", () => resolve(), { once: true });
    void running.then(() => resolve());
  });
  if (stop.aborted) void link.release();
  const abandoned = new Promise<Settled>((resolve) => {
    const timer = startTimer(RUNNER_STOP_MS_MAX, () => resolve({ type: "abandoned" }));
    void running.then(() => timer.clear());
  });
  return await Promise.race([running, abandoned]);
}

function contextOf({ task, link, stop }: RunnerDrive, notes: Notes) {
  const view = taskView(task);
  const context: RunnerContext = Object.freeze({
    task: view,
    lease: new WorkerLease(link, {}),
    signal: stop.signal,
    note: (text: string) => notes.add(text),
  });
  return { input: view.input, context };
}

function endOf(settled: Settled, { link, stopEnd }: RunnerDrive): TaskEnd {
  const stopped = stopEnd();
  if (stopped !== null) return stopped;
  if (link.over.aborted) {
    return {
      status: "failed",
      reason: "worker_lost",
      error: CprgError.from(link.over.reason).message,
    };
  }
  if (settled.type === "result") return resultEnd(settled.value);
  const error = settled.type === "error" ? settled.error : new Error("the runner was given up");
  return { status: "failed", reason: reasonOf(error), error: messageOf(error) };
}

function resultEnd(value: unknown): TaskEnd {
  try {
    const result = checkedJson("result", value);
    const bytes = Buffer.byteLength(JSON.stringify(result));
    if (bytes > TASK_RESULT_BYTES_MAX) {
      throw new CprgError(
        "invalid_argument",
        `Cannot use result: above ${TASK_RESULT_BYTES_MAX} bytes`,
      );
    }
    return { status: "succeeded", reason: "exit", result };
  } catch (error) {
    const { message } = CprgError.from(error);
    return { status: "failed", reason: "result_not_serializable", error: message };
  }
}

function reasonOf(error: unknown): Reason {
  const said = CprgError.is(error) ? error.reason?.toLowerCase() : undefined;
  return REASONS.find((reason) => reason === said) ?? "runner_error";
}

function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text === "" ? "the runner failed" : text;
}

/** Notes of one run: bounded, and none after its end. */
class Notes {
  readonly #keep: (text: string) => Promise<void>;
  #count = 0;
  #hasEnded = false;

  constructor(keep: (text: string) => Promise<void>) {
    this.#keep = keep;
  }

  async add(text: string): Promise<void> {
    if (this.#hasEnded || this.#count > RUNNER_NOTES_MAX) return;
    this.#count += 1;
    const isLast = this.#count > RUNNER_NOTES_MAX;
    await this.#keep(isLast ? "Further notes are left out.\n" : cut(String(text)));
  }

  end(): void {
    this.#hasEnded = true;
  }
}

function cut(text: string): string {
  return cutText(text.toWellFormed(), RUNNER_NOTE_BYTES_MAX);
}
