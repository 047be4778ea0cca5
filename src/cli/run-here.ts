/** `cprg run` without a server: wires an engine, a log in memory and the terminal together. */

import { CprgError } from "../core/errors.ts";
import type { EventDraft } from "../core/event.ts";
import type { Job, JobSpec } from "../core/job.ts";
import { checkCodeFile } from "../jobs/file-rules.ts";
import { jobSpec } from "../jobs/spec.ts";
import { StopSwitch } from "../jobs/stop-switch.ts";
import { resultHead } from "../jobs/views.ts";
import { exportLog } from "../record/export.ts";
import { resultStream } from "../record/result-stream.ts";
import type { LocalEngine } from "../sandbox/engine.ts";
import { LANGUAGE_NAMES } from "../sandbox/languages.ts";
import type { Store } from "../store/contract.ts";
import { memoryStore } from "../store/memory-store.ts";
import { openSigningKey } from "../store/signing-key.ts";
import { type ConfigInput, type LoadedConfig, loadConfig } from "./config.ts";
import { openDataDirectory } from "./data-directory.ts";
import { openEngine } from "./engine.ts";
import { engineFlagValues } from "./engine-flags.ts";
import { EXIT } from "./exit-code.ts";
import { type JsonLog, jsonLog } from "./log-json.ts";
import { reportError } from "./report-error.ts";
import { collectArtifacts, makeOutDirectory } from "./run-artifacts.ts";
import { languageRefusal } from "./run-language.ts";
import { runLocally } from "./run-local.ts";
import { RunOutput } from "./run-output.ts";
import { type ReportedEnd, reportClamped, reportEnd, runExitCode } from "./run-report.ts";
import type { RunRequest } from "./run-request.ts";
import { takeSignals } from "./run-stop.ts";
import { checkPlace, writeWhole } from "./save-export.ts";
import type { LogSpec } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

/** How a run is wanted. */
export interface RunWishes {
  readonly flags: {
    readonly json: boolean;
    readonly save: string | undefined;
    readonly out: string | undefined;
  } & ConfigInput["flags"];
  readonly terminal: Terminal;
}

/** Runs a request in this process; returns the exit code. */
export async function runHere(request: RunRequest, { flags, terminal }: RunWishes) {
  const settings = engineFlagValues(flags);
  const config = await loadConfig({ flags: settings, env: terminal.env, uid: terminal.uid });
  const spec = specOf(request, config);
  await reportClamped(request.limits, { ...spec.limits }, terminal);
  if (flags.save !== undefined) {
    await checkPlace(flags.save);
    await openDataDirectory(config.settings.dataDir);
  }
  if (flags.out !== undefined) await makeOutDirectory(flags.out);

  const stop = new StopSwitch();
  const output = new RunOutput(terminal, () => stop.stop({ reason: "user", graceMs: 0 }));
  using signals = takeSignals(terminal, {
    cancel: () => stop.stop({ reason: "user", graceMs: spec.killGraceSeconds * 1000 }),
    kill: () => {
      stop.stop({ reason: "user", graceMs: 0 });
      output.abandon();
    },
  });
  const log = jsonLog(terminal.log, { spec: logSpec(config), now: Date.now });
  const engine = await startEngine(spec, { config, log, terminal });
  if (engine === null) return EXIT.notStarted;
  const store = memoryStore();
  const show = async (draft: EventDraft) => {
    if (!flags.json) await showOutput(draft, output);
  };
  let job: Job;
  try {
    job = await runWith(engine, { spec, store, stop, show, log, out: flags.out });
  } finally {
    await engine.close();
  }
  const { save } = flags;
  if (save !== undefined)
    await saveLog({ job, store, path: save, dataDir: config.settings.dataDir });
  if (flags.json) await printResult(job, store, terminal);
  if (output.isClosed) return EXIT.closedOutput;
  const end = toEnd(job);
  const circumstances = { command: "run", limits: { ...spec.limits }, stoppedBy: signals.first };
  await reportEnd(end, circumstances, terminal);
  return runExitCode(end, circumstances);
}

/** The program's output is the matter here: only errors disturb it, unless more was asked for. */
function logSpec({ settings, sources }: LoadedConfig): LogSpec {
  return sources.log === "default" ? { level: "error", byScope: {} } : settings.log;
}

function specOf({ stdin, ...request }: RunRequest, { settings }: LoadedConfig): JobSpec {
  const stdinBase64 = stdin === null ? undefined : Buffer.from(stdin).toString("base64");
  return jobSpec({ ...request, stdinBase64 }, settings.ceilings);
}

interface EngineWishes {
  readonly config: LoadedConfig;
  readonly log: JsonLog;
  readonly terminal: Terminal;
}

/** An engine that can run the spec; null, with the reason said, when there is none: exit code 125. */
async function startEngine(spec: JobSpec, wishes: EngineWishes): Promise<LocalEngine | null> {
  let engine: LocalEngine | null = null;
  try {
    engine = await openEngine(wishes.config, wishes.log);
    const language = await resolveLanguage(engine, spec.language);
    checkCodeFile(spec.files, language.fileName);
    if (engine.mode === "off") await warnOff(wishes.terminal);
    return engine;
  } catch (error) {
    await engine?.close();
    // A language that nobody knows is wrong use; one that is not installed here is not.
    const isUsage = CprgError.is(error) && error.code === "invalid_argument";
    const isMissing = CprgError.is(error) && error.reason === "NO_INTERPRETER";
    if (!CprgError.is(error) || (isUsage && !isMissing)) throw error;
    await reportError(error, "cprg run", wishes.terminal);
    return null;
  }
}

async function resolveLanguage(engine: LocalEngine, name: string) {
  try {
    return await engine.languages.resolve(name);
  } catch (error) {
    throw languageRefusal(error, name, `One of ${LANGUAGE_NAMES.join(", ")}`);
  }
}

async function warnOff(terminal: Terminal): Promise<void> {
  const text = "cprg run: the sandbox is off: the program can do whatever this user can\n";
  await terminal.stderr.write(text).catch(() => undefined);
}

async function runWith(
  engine: LocalEngine,
  run: {
    readonly spec: JobSpec;
    readonly store: Store;
    readonly stop: StopSwitch;
    readonly show: (draft: EventDraft) => Promise<void>;
    readonly log: JsonLog;
    readonly out: string | undefined;
  },
): Promise<Job> {
  const { out, log, ...rest } = run;
  const artifacts = out === undefined ? null : collectArtifacts(engine, out);
  const provider = artifacts?.provider ?? engine;
  const job = await runLocally({
    ...rest,
    provider,
    languages: engine.languages,
    log: log.scope("jobs"),
  });
  artifacts?.check();
  return job;
}

async function showOutput(draft: EventDraft, output: RunOutput): Promise<void> {
  if (draft.kind !== "stdout" && draft.kind !== "stderr") return;
  await output.write(draft.kind, Buffer.from(draft.data, draft.encoding ?? "utf8"));
}

async function printResult(job: Job, store: Store, terminal: Terminal): Promise<void> {
  const result = { subject: `job:${job.id}` as const, head: resultHead(job) };
  for await (const piece of resultStream(store.events, result)) await terminal.stdout.write(piece);
  await terminal.stdout.write("\n");
}

async function saveLog(options: {
  readonly job: Job;
  readonly store: Store;
  readonly path: string;
  readonly dataDir: string;
}): Promise<void> {
  const { job, store, path, dataDir } = options;
  const key = await openSigningKey(dataDir);
  await writeWhole(path, async (write) => {
    for await (const chunk of exportLog({ store, key, subject: `job:${job.id}` })) {
      await write(chunk);
    }
  });
}

function toEnd({ outcome }: Job): ReportedEnd {
  return {
    reason: outcome?.reason ?? "runner_error",
    exitCode: outcome?.exitCode ?? null,
    signal: outcome?.signal ?? null,
    error: outcome?.error ?? null,
  };
}
