/**
 * The life of one job: a sandbox is opened, files and code go in, the program runs and is recorded,
 * the sandbox is removed, and only then is the outcome returned. Knows neither queue nor HTTP nor
 * store; `cprg run` uses it as the queue does.
 */

import type { Clock } from "../core/clock.ts";
import { assert } from "../core/errors.ts";
import type { EventData } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Exec, ExecLease, ExecProvider, ExecSpec, Reservation } from "../provider/contract.ts";
import { neverRan, notRecorded, outcomeError, setupReason } from "../record/failed-outcome.ts";
import type { RowBounds } from "../record/output-rows.ts";
import { Recorder } from "../record/recorder.ts";
import { sandboxVariables } from "../sandbox/variables.ts";
import type { TimedDraft } from "../store/contract.ts";
import type { JobLanguage, JobLanguages } from "./languages.ts";
import type { StopSwitch } from "./stop-switch.ts";

/** What one run works with. */
export interface JobRun {
  readonly spec: JobSpec;
  readonly provider: ExecProvider;
  /** A granted place; it is used up or given back. */
  readonly reservation: Reservation;
  readonly languages: JobLanguages;
  /** Commits events of this job, in order. */
  append(drafts: readonly TimedDraft[]): Promise<unknown>;
  /** Takes what the program left, after its end and before its sandbox goes; never rejects. */
  collect?(lease: ExecLease): Promise<void>;
  readonly stop: StopSwitch;
  readonly clock: Clock;
  readonly log: Log;
  /** Bounds of rows, for tests. */
  readonly bounds?: RowBounds;
}

/**
 * Runs a job to its end. When it resolves, nothing of the sandbox is left.
 *
 * @returns how it ended; a failed set-up is an outcome too, so it never rejects
 */
export async function runJob(run: JobRun): Promise<Outcome> {
  let lease: ExecLease;
  try {
    lease = await run.provider.open(run.reservation, { signal: run.stop.signal });
  } catch (error) {
    run.reservation.cancel();
    return failedSetup(run, error);
  }
  let outcome: Outcome;
  try {
    outcome = await runInLease(run, lease);
    await run.collect?.(lease);
  } catch (error) {
    outcome = failedSetup(run, error);
  }
  try {
    await lease.release();
  } catch (error) {
    run.log.error("sandbox not removed", { error });
    outcome = { ...outcome, error: outcome.error ?? outcomeError(error) };
  }
  return outcome;
}

/** A stop that came first explains why nothing ran better than what it made fail. */
function failedSetup(run: JobRun, error: unknown): Outcome {
  if (run.stop.request !== null) return neverRan(run.stop.request.reason);
  return neverRan(setupReason(error), outcomeError(error));
}

async function runInLease(run: JobRun, lease: ExecLease): Promise<Outcome> {
  const { spec, stop } = run;
  const language = spec.code === null ? null : await run.languages.resolve(spec.language);
  await putFiles(run, lease, language);
  if (stop.request !== null) return neverRan(stop.request.reason);

  const exec = await lease.exec(execSpec(spec, { language, root: lease.root }));
  stop.listen(({ reason, graceMs }) => exec.kill(reason, { graceMs }));
  return await recordExec(run, exec, {
    layers: lease.layers,
    missing: lease.missing,
    limits: spec.limits,
    interpreter: language === null ? null : `${language.name} ${language.version}`,
  });
}

async function putFiles(run: JobRun, lease: ExecLease, language: JobLanguage | null) {
  for (const { path, base64, mode } of run.spec.files) {
    if (run.stop.request !== null) return;
    await lease.putFile(`${lease.root}/${path}`, Buffer.from(base64, "base64"), mode);
  }
  if (language === null) return;
  const code = Buffer.from(run.spec.code ?? "", "utf8");
  await lease.putFile(`${lease.root}/${language.fileName}`, code, 0o644);
}

function execSpec(
  spec: JobSpec,
  { language, root }: { language: JobLanguage | null; root: string },
): ExecSpec {
  const [program, ...args] = spec.args;
  const executable = language === null ? program : language.executable;
  assert(executable !== undefined, "an argv job has a program");
  return {
    executable,
    arguments: language === null ? args : language.command(spec.args),
    directory: root,
    language: spec.language,
    // The language's come last: without its own an interpreter may be another program altogether.
    variables: sandboxVariables({ ...spec.env, ...language?.variables }),
    ...(spec.stdinBase64 === null ? {} : { stdin: Buffer.from(spec.stdinBase64, "base64") }),
  };
}

/** `started` is written once the program runs, so that a log which says so is of one that did. */
async function recordExec(
  run: JobRun,
  exec: Exec,
  started: EventData["started"],
): Promise<Outcome> {
  const failures: unknown[] = [];
  const giveUp = (error: unknown): void => {
    if (failures.push(error) === 1) exec.kill("runner_error", { graceMs: 0 });
  };
  const recorder = new Recorder({
    append: (drafts) => run.append(drafts),
    clock: run.clock,
    onFailure: giveUp,
    ...(run.bounds === undefined ? {} : { bounds: run.bounds }),
  });
  recorder.record({ kind: "started", data: started });
  const followed = recorder.follow(exec.notices).catch(giveUp);
  const outcome = await exec.outcome;
  await followed;
  return failures.length === 0 ? outcome : notRecorded(outcome, failures[0]);
}
