/** Runs one attack to a verdict: its sandbox, its program, what the host sees, and the end. */

import { assert } from "../core/errors.ts";
import { DEFAULT_LIMITS, type Limits } from "../core/limits.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Exec, ExecLease, ExecSpec } from "../provider/contract.ts";
import { sandboxVariables } from "../sandbox/variables.ts";
import { type Attack, broken, type HostileProgram, type Seen, type Verdict } from "./attack.ts";
import { Conversation } from "./conversation.ts";
import { descendants, type HostProcess, isAlive, programsAmong } from "./host-process.ts";
import type { Stage } from "./stage.ts";

/** Limits of a hostile program that names none: short, so that what hangs ends. */
const ATTACK_LIMITS: Limits = {
  ...DEFAULT_LIMITS,
  wall_seconds: 20,
  // Where memory is limited without a group the runtime needs more than the default (setrlimit(2)).
  mem_mb: 512,
  disk_mb: 32,
  output_kb: 64,
};

/**
 * Without a group that limits memory RLIMIT_DATA does, and counts what JavaScriptCore reserves for
 * compiled code; without compiled code there is no bun:ffi, through which programs make their calls.
 */
const SMALL_JIT = { BUN_JSC_jitMemoryReservationSize: String(64 * 1024 * 1024) };

/** An attack that is under way. */
export interface AttackRun {
  readonly stage: Stage;
  readonly attack: Attack;
  /** What programs' wall_seconds are multiplied by, and cpu_seconds where none are asked for. */
  readonly patience: number;
  /** Ends what runs. */
  readonly signal: AbortSignal;
}

/** Runs it; a fault on the way is a verdict too, because nothing was shown to hold. */
export async function runAttack(run: AttackRun): Promise<Verdict> {
  try {
    return await stageAttack(run);
  } catch (error) {
    return broken(`could not be judged: ${error instanceof Error ? error.message : error}`);
  }
}

async function stageAttack(run: AttackRun): Promise<Verdict> {
  const { attack } = run;
  const before = new Set(descendants(process.pid).map(key));
  const neighbour = attack.hasNeighbour === true ? await startNeighbour(run) : null;
  const beside = new Set([...before, ...(neighbour?.processes ?? []).map(key)]);
  try {
    const { seen, survivors } = await playProgram(run, {
      isOurs: (process) => !beside.has(key(process)),
      neighbours: neighbour?.programs ?? [],
    });
    if (survivors.length > 0) {
      return broken(`${survivors.length} processes lived when the end was reported`);
    }
    return attack.judge(seen);
  } finally {
    await neighbour?.lease.release();
  }
}

function key({ pid, startTime }: HostProcess): string {
  return `${pid}/${startTime}`;
}

interface Played {
  readonly seen: Seen;
  /** Processes of the sandbox that lived at the instant at which its end was reported. */
  readonly survivors: readonly HostProcess[];
}

interface Surroundings {
  isOurs(process: HostProcess): boolean;
  readonly neighbours: readonly HostProcess[];
}

async function playProgram(run: AttackRun, around: Surroundings): Promise<Played> {
  const { stage, attack } = run;
  const { program, after } = attack;
  const limits = limitsOf(program, run.patience);
  const own = (): readonly HostProcess[] => descendants(process.pid).filter(around.isOurs);
  const lease = await stage.engine.open(await stage.engine.reserve(limits));
  let survivors: readonly HostProcess[] = [];
  try {
    const exec = await startProgram(stage, lease, program);
    const talk = new Conversation(exec, { hostLine: hostLine(stage, around.neighbours) });
    // Looked at in the turn in which the end is known: nothing may need a moment longer.
    const ending = exec.outcome.then((outcome) => {
      survivors = own().filter(({ parent }) => parent !== process.pid);
      return outcome;
    });
    const stop = (): void => exec.kill("user", { graceMs: 0 });
    run.signal.addEventListener("abort", stop, { once: true });
    const { watched, outcome, known } = await watchProgram(run, {
      lease,
      exec,
      talk,
      ending,
      own,
      neighbours: around.neighbours,
    });
    run.signal.removeEventListener("abort", stop);
    const sameAfter =
      after?.where === "same" ? await playAfter(stage, lease, after.program) : undefined;
    await lease.release();
    survivors = [...survivors, ...own(), ...known.filter(isAlive)];
    const newAfter = after?.where === "new" ? await playAfterInNew(run, after.program) : "";
    return {
      survivors,
      seen: {
        stage,
        limits,
        outcome,
        notices: talk.notices,
        stdout: talk.stdout,
        stderr: talk.stderr,
        received: talk.received,
        watched,
        after: sameAfter ?? newAfter,
        report: () => parseReport(talk.stdout, talk.stderr, outcome),
        reportAfter: () => parseReport(sameAfter ?? newAfter, "", outcome),
      },
    };
  } finally {
    await lease.release();
  }
}

function limitsOf({ limits }: Pick<HostileProgram, "limits">, patience: number): Limits {
  const cpu_seconds = ATTACK_LIMITS.cpu_seconds * patience;
  const wanted = { ...ATTACK_LIMITS, cpu_seconds, ...limits };
  return { ...wanted, wall_seconds: wanted.wall_seconds * patience };
}

interface WatchParts {
  readonly lease: ExecLease;
  readonly exec: Exec;
  readonly talk: Conversation;
  readonly ending: Promise<Outcome>;
  own(): readonly HostProcess[];
  readonly neighbours: readonly HostProcess[];
}

async function watchProgram(
  { stage, attack }: AttackRun,
  { lease, exec, talk, ending, own, neighbours }: WatchParts,
) {
  let watched: unknown;
  let known: readonly HostProcess[] = [];
  if (attack.watch !== undefined) {
    if (!(await talk.untilReady())) throw new Error(endedEarly(await ending, talk.stderr));
    known = own();
    const init = known.find(({ parent }) => parent === process.pid);
    assert(init !== undefined, "a sandbox whose program runs has a process 1");
    const programs = programsAmong(known, exec.pid).filter((process) => process !== init);
    watched = await attack.watch({ stage, lease, exec, init, programs, neighbours });
  }
  if (attack.program.ending === "cancel") exec.kill("user", { graceMs: 0 });
  if (attack.program.ending === "release") await lease.release();
  await talk.untilEnd();
  return { watched, known, outcome: await ending };
}

function endedEarly({ reason }: Outcome, stderr: string): string {
  const complaint = stderr.trim().slice(-COMPLAINT_LENGTH_MAX);
  return `the program ended by ${reason} before the host could look ${complaint}`;
}

/**
 * What a program is told to reach for. The token is written backwards: a program that searches for it
 * must not find its own input. Neighbours are numbered as on the host.
 */
function hostLine(
  { token, canaries, listeners }: Stage,
  neighbours: readonly HostProcess[] = [],
): string {
  const { port, path, abstractName } = listeners;
  const nekot = [...token].reverse().join("");
  const pids = neighbours.map(({ pid }) => pid);
  return JSON.stringify({ nekot, canaries, port, path, abstractName, neighbours: pids });
}

async function startProgram(
  stage: Stage,
  lease: ExecLease,
  program: HostileProgram,
): Promise<Exec> {
  return await lease.exec({ ...(await execSpec(stage, lease, program)), stdin: "pipe" });
}

async function execSpec(
  { engine }: Stage,
  lease: ExecLease,
  { language, code }: HostileProgram,
): Promise<ExecSpec> {
  if (language === "sh") {
    return { executable: "/bin/sh", arguments: ["-c", code], variables: sandboxVariables() };
  }
  const runtime = await engine.languages.resolve("javascript");
  await lease.putFile(runtime.fileName, Buffer.from(code));
  return {
    executable: runtime.executable,
    arguments: runtime.command([]),
    variables: sandboxVariables({ ...runtime.variables, ...SMALL_JIT }),
    language: "javascript",
  };
}

async function playAfter(stage: Stage, lease: ExecLease, program: HostileProgram): Promise<string> {
  const exec = await startProgram(stage, lease, program);
  const talk = new Conversation(exec, { hostLine: hostLine(stage) });
  await talk.untilEnd();
  await exec.outcome;
  return talk.stdout;
}

async function playAfterInNew(
  { stage, patience }: AttackRun,
  program: HostileProgram,
): Promise<string> {
  const lease = await stage.engine.open(await stage.engine.reserve(limitsOf(program, patience)));
  try {
    return await playAfter(stage, lease, program);
  } finally {
    await lease.release();
  }
}

/** A second sandbox, whose program waits for input that never comes. */
async function startNeighbour({ stage, patience }: AttackRun) {
  const before = new Set(descendants(process.pid).map(key));
  const lease = await stage.engine.open(await stage.engine.reserve(limitsOf({}, patience)));
  try {
    const variables = sandboxVariables();
    const args = ["-c", "echo READY; read line"];
    const spec = { executable: "/bin/sh", arguments: args, variables, stdin: "pipe" } as const;
    const exec = await lease.exec(spec);
    const talk = new Conversation(exec, { hostLine: null });
    await talk.untilReady();
    const processes = descendants(process.pid).filter((found) => !before.has(key(found)));
    const programs = programsAmong(processes, exec.pid);
    return { lease, processes, programs };
  } catch (error) {
    await lease.release();
    throw error;
  }
}

const REPORT_LINE = /^REPORT (.*)$/m;
/** How much of a program's complaint a verdict shows. */
const COMPLAINT_LENGTH_MAX = 200;

function parseReport(
  stdout: string,
  stderr: string,
  outcome: Outcome,
): Readonly<Record<string, unknown>> {
  const line = REPORT_LINE.exec(stdout)?.[1];
  if (line === undefined) {
    const complaint = stderr.trim().slice(-COMPLAINT_LENGTH_MAX);
    throw new Error(`the program reported nothing and ended by ${outcome.reason} ${complaint}`);
  }
  return JSON.parse(line) as Readonly<Record<string, unknown>>;
}
