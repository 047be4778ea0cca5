/** Jobs of `cprg worker`: what `job.Run` asks for, run as a server runs its own, its events sent on. */

import { systemClock } from "../core/clock.ts";
import { CprgError, invalid } from "../core/errors.ts";
import type { EventDraft, OutputBytes } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { JobRunRequest } from "../gen/messages.ts";
import { checkCodeFile } from "../jobs/file-rules.ts";
import { runJob } from "../jobs/run.ts";
import { jobSpec } from "../jobs/spec.ts";
import { StopSwitch } from "../jobs/stop-switch.ts";
import type { LocalEngine } from "../sandbox/engine-contract.ts";
import type { TimedDraft } from "../store/contract.ts";
import { finishedDraft } from "../store/log-lines.ts";
import type { JobEvent, JobRunner, JobRunOptions } from "../worker/job-methods.ts";

/** What jobs run in. */
export interface WorkerJobsOptions {
  readonly engine: LocalEngine;
  /** Of this worker, which no request exceeds. */
  readonly ceilings: Limits;
  readonly log: Log;
}

/** Runs jobs in sandboxes of an engine. */
export function workerJobs(options: WorkerJobsOptions): JobRunner {
  return { run: (request, wishes) => run(request, wishes, options) };
}

async function run(
  request: JobRunRequest,
  { signal, emit }: JobRunOptions,
  { engine, ceilings, log }: WorkerJobsOptions,
): Promise<void> {
  const spec = jobSpec(requestOf(request), ceilings);
  await checkLanguage(spec, engine);
  const stop = new StopSwitch();
  const onAbort = (): void => stop.stop({ reason: "user", graceMs: 0 });
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  try {
    const reservation = await engine.reserve(spec.limits, { signal });
    const outcome = await runJob({
      spec,
      provider: engine,
      reservation,
      languages: engine.languages,
      append: async (drafts) => {
        for (const each of drafts) await emit(eventOf(each));
      },
      stop,
      clock: systemClock,
      log,
    });
    await emit(eventOf({ at: systemClock.now(), draft: finishedDraft(outcome) }));
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function requestOf(request: JobRunRequest) {
  const { language, code, args, env, stdin, files, limits } = request;
  const program =
    language === "" && code.length === 0
      ? { argv: args }
      : { language: language === "" ? undefined : language, code: textOf(code), args };
  return {
    ...program,
    env,
    limits,
    ...(stdin.length === 0 ? {} : { stdinBase64: Buffer.from(stdin).toString("base64") }),
    files: files.map(({ path, content, mode }) => ({
      path,
      base64: Buffer.from(content).toString("base64"),
      mode,
    })),
  };
}

function textOf(code: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(code);
  } catch {
    throw invalid("code", "Cannot run code: it is no UTF-8");
  }
}

/** One that is not installed here is an outcome; one that nobody knows is a wrong request. */
async function checkLanguage(spec: JobSpec, engine: LocalEngine): Promise<void> {
  if (spec.code === null) return;
  try {
    const { fileName } = await engine.languages.resolve(spec.language);
    checkCodeFile(spec.files, fileName);
  } catch (error) {
    if (CprgError.is(error) && error.reason === "NO_INTERPRETER") return;
    throw error;
  }
}

function eventOf({ at, draft }: TimedDraft): JobEvent {
  return isOutput(draft)
    ? { at, kind: draft.kind, output: draft.bytes }
    : { at, kind: draft.kind, data: JSON.stringify(draft.data) };
}

function isOutput(draft: EventDraft | OutputBytes): draft is OutputBytes {
  return "bytes" in draft;
}
