/**
 * The life of one job: a sandbox is opened, files and code go in, the program runs and is recorded,
 * the sandbox is removed, and only then is the outcome returned. Knows neither queue nor HTTP nor
 * store; `cprg run` uses it as the queue does.
 */

import type { Clock } from "../core/clock.ts";
import { assert, CprgError } from "../core/errors.ts";
import type { EventData } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Exec, ExecLease, ExecProvider, ExecSpec, Reservation } from "../provider/contract.ts";
import { neverRan, notRecorded, outcomeError, setupReason } from "../record/failed-outcome.ts";
import type { RowBounds } from "../record/output-rows.ts";
import { Recorder } from "../record/recorder.ts";
import { isSandboxGone } from "../sandbox/init-channel.ts";
import { sandboxVariables } from "../sandbox/variables.ts";
import type { TimedDraft } from "../store/contract.ts";
import type { JobLanguage, JobLanguages } from "./languages.ts";
import type { StopSwitch } from "./stop-switch.ts";

/** What one run works with. */
export interface JobRun {
  readonly spec: JobSpec;
  readonly provider: ExecProvider;
  /** For whom, where several share a host. */
  readonly tenant?: string;
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
  const outcome = await attempt(run, { reservation: run.reservation, isNew: false });
  return outcome ?? (await runAgain(run));
}

/** Once, in a sandbox of its own: one that is built now has not died while it waited. */
async function runAgain(run: JobRun): Promise<Outcome> {
  const { limits } = run.reservation;
  run.log.warn("a sandbox that had waited died before its program ran: the job gets another", {});
  let reservation: Reservation;
  try {
    reservation = await run.provider.reserve(limits, {
      signal: run.stop.signal,
      ...(run.tenant === undefined ? {} : { tenant: run.tenant }),
    });
  } catch (error) {
    return failedSetup(run, error);
  }
  const outcome = await attempt(run, { reservation, isNew: true });
  assert(outcome !== null, "there is no third sandbox");
  return outcome;
}

/** A place, and what is opened in it. */
interface Attempt {
  readonly reservation: Reservation;
  readonly isNew: boolean;
}

/** Where a program is started. */
interface Place {
  readonly lease: ExecLease;
  /** Whether another sandbox may be tried when this one dies before anything ran. */
  readonly canLeave: boolean;
}

/** Null when the sandbox died while it waited: nothing ran, and the place is free again. */
async function attempt(run: JobRun, { reservation, isNew }: Attempt): Promise<Outcome | null> {
  const { signal } = run.stop;
  let lease: ExecLease;
  try {
    lease = await run.provider.open(reservation, { signal, isNew });
  } catch (error) {
    reservation.cancel();
    return failedSetup(run, error);
  }
  let outcome: Outcome | null;
  try {
    const canLeave = !isNew && lease.wasWaiting === true;
    outcome = await runInLease(run, { lease, canLeave });
    if (outcome !== null) await run.collect?.(lease);
  } catch (error) {
    outcome = failedSetup(run, error);
  }
  return await endLease(run, lease, outcome);
}

async function endLease<T extends Outcome | null>(run: JobRun, lease: ExecLease, outcome: T) {
  try {
    await lease.release();
  } catch (error) {
    run.log.error("sandbox not removed", { error });
    // Nothing runs anew beside what is left.
    if (outcome === null) return failedSetup(run, error);
    return { ...outcome, error: outcome.error ?? outcomeError(error) };
  }
  return outcome;
}

/** A stop that came first explains why nothing ran better than what it made fail. */
function failedSetup(run: JobRun, error: unknown): Outcome {
  if (run.stop.request !== null) return neverRan(run.stop.request.reason);
  return neverRan(setupReason(error), outcomeError(error));
}

/** Null as {@link attempt}. */
async function runInLease(run: JobRun, place: Place): Promise<Outcome | null> {
  const { spec, stop } = run;
  const language = spec.code === null ? null : await run.languages.resolve(spec.language);
  const exec = await startProgram(run, place, language);
  if (exec === null) return stop.request === null ? null : neverRan(stop.request.reason);

  stop.listen(({ reason, graceMs }) => exec.kill(reason, { graceMs }));
  return await recordExec(run, exec, {
    layers: place.lease.layers,
    missing: place.lease.missing,
    limits: spec.limits,
    interpreter: language === null ? null : `${language.name} ${language.version}`,
  });
}

/** Null when the run was stopped, or the sandbox died while it waited; nothing ran then. */
async function startProgram(
  run: JobRun,
  { lease, canLeave }: Place,
  language: JobLanguage | null,
): Promise<Exec | null> {
  let isAsked = false;
  try {
    await putFiles(run, lease, language);
    if (run.stop.request !== null) return null;
    isAsked = true;
    return await lease.exec(execSpec(run.spec, { language, root: lease.root }));
  } catch (error) {
    // Files come before the program; and an exec that fails with `setup` never ran.
    const hasNotRun = !isAsked || (CprgError.is(error) && error.setup !== undefined);
    if (canLeave && hasNotRun && isSandboxGone(error)) return null;
    throw error;
  }
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
