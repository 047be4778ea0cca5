/** Starting a program in a sandbox: its group, its pipes, the request, and the answer to it. */

import { closeSync } from "node:fs";
import type { CprgError, ErrorCode } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import { ownTurn } from "../core/turn.ts";
import type { ExecSpec, OutputChannel, TerminalSize } from "../provider/contract.ts";
import type { ExecGroup, ExecLink, SandboxGroups } from "./cgroup.ts";
import { descriptorError } from "./descriptor-error.ts";
import { emptyGroup } from "./empty-group.ts";
import { LocalExec } from "./exec.ts";
import { type ExecBounds, execLimits, execRlimits } from "./exec-limits.ts";
import { isSandboxGone, sandboxGone } from "./init-channel.ts";
import { InputPipe } from "./input.ts";
import { REPORT, type Report } from "./layout.ts";
import type { Native } from "./native.ts";
import { NoticeQueue } from "./notice-queue.ts";
import { OutputStream } from "./output.ts";
import { listenFor } from "./reports.ts";
import { WORKSPACE } from "./root-plan.ts";
import type { Sandbox } from "./sandbox.ts";
import type { SeccompFilters } from "./seccomp/filters.ts";
import { encodeExec } from "./spawn-plan.ts";
import { answerOf } from "./start-wait.ts";
import { stepError } from "./steps.ts";
import { terminalReader } from "./terminal-reader.ts";
import { LimitWatch, NOTHING_COUNTED, type Tally, tallyOf } from "./watch.ts";

/**
 * Above whatever protection the server has of its own. Process 1 gets the same (ffi/serve.c), so no
 * more than this: a program may lower its own again, and among equals the larger is killed, which
 * process 1 never is.
 */
const OOM_SCORE_ADJ = 1;
const UMASK = 0o022;
const KIB = 1024;
const STEP_DIRECTORY = 71;
const STEP_EXECVE = 72;
const ENOENT = 2;
const EACCES = 13;
const ENOTDIR = 20;

/** What is asked of a sandbox first has this id: nothing has run in it, so nothing has been counted. */
export const FIRST_ID = 1;

/** Where a program is started. */
export interface ExecHost {
  readonly native: Native;
  readonly sandbox: Sandbox;
  readonly limits: Limits;
  readonly log: Log;
  readonly filters: SeccompFilters;
  /** Aborted when the lease ends: what has not started then never will. */
  readonly ending: AbortSignal;
}

/** The server's ends of a program's streams, and the program's own. */
interface Pipes {
  readonly input: InputPipe | null;
  readonly outputs: readonly { readonly channel: OutputChannel; readonly fd: number }[];
  readonly isTerminal: boolean;
  readonly theirs: readonly number[];
}

/**
 * Starts a program.
 *
 * @param id unique among those that live in the sandbox
 * @throws CprgError with `setup` when it never ran; then nothing of it is left
 */
export async function startExec(host: ExecHost, spec: ExecSpec, id: number): Promise<LocalExec> {
  const limits = execLimits(host.limits, spec.limits);
  const before = id === FIRST_ID ? NOTHING_COUNTED : tallyOf(host.sandbox.groups);
  const group = await host.sandbox.groups.createExec(host.sandbox.pid, linkTo(host, id));
  await ownTurn();
  const reports = listenFor(host.sandbox.channel, id);
  let pipes: Pipes | null = null;
  try {
    pipes =
      spec.terminal === undefined
        ? openPipes(host.native, spec)
        : openTerminal(host, spec.terminal);
    const message = encodeExec({
      id,
      argv: [spec.executable, ...spec.arguments],
      variables: spec.variables,
      directory: spec.directory ?? WORKSPACE,
      isNullStdin: pipes.input === null,
      isTerminal: pipes.isTerminal,
      cgroupCount: group.fds.length,
      isKept: group.isKept ?? false,
      rlimits: execRlimits(limits, boundsOf(host.sandbox.groups)),
      umask: UMASK,
      oomScoreAdj: OOM_SCORE_ADJ,
      filter: host.filters.of(spec.language),
    });
    const streams = pipes.isTerminal ? thrice(pipes.theirs) : pipes.theirs;
    await send(host, message, [...streams, ...group.fds]);
  } catch (error) {
    if (pipes !== null) closeOurs(pipes);
    await dropGroup(host, group);
    throw descriptorError(error, startOf(spec));
  } finally {
    if (pipes !== null) for (const fd of pipes.theirs) closeSync(fd);
    group.sent();
  }
  const started = await answerOf({
    ...host,
    id,
    group,
    reports,
    signal: spec.signal,
  }).catch(async (error: unknown) => {
    closeOurs(pipes);
    await dropGroup(host, group);
    throw error;
  });
  if (started?.type === REPORT.started) {
    group.started?.(started.entries);
    return assemble(host, {
      id,
      limits,
      before,
      group,
      pipes,
      spec,
      started,
      exited: reports.ended,
      violated: reports.violated,
    });
  }
  closeOurs(pipes);
  await dropGroup(host, group);
  throw started === null ? sandboxGone() : execError(started, spec);
}

/** @throws CprgError with `setup` where process 1 was gone before it could be asked: nothing ran */
async function send({ sandbox }: ExecHost, message: Uint8Array, fds: readonly number[]) {
  try {
    await sandbox.channel.send(message, fds);
  } catch (error) {
    throw isSandboxGone(error) ? sandboxGone({ cause: error, isUnasked: true }) : error;
  }
}

function linkTo({ native, sandbox }: ExecHost, id: number): ExecLink {
  const filesShare = (): number => {
    if (sandbox.workspaceFd < 0) return 0;
    const { blocks, blocksFree } = native.statfs(sandbox.workspaceFd);
    return 1 - blocksFree / blocks;
  };
  return { id, channel: sandbox.channel, filesShare };
}

function boundsOf(groups: SandboxGroups): ExecBounds {
  const tasks = groups.taskLimit?.();
  return { hasMemoryLimit: groups.hasMemoryLimit, ...(tasks === undefined ? {} : { tasks }) };
}

function openPipes(native: Native, spec: ExecSpec): Pipes {
  const opened: number[] = [];
  const open = (ours: "read" | "write"): readonly [number, number] => {
    const pair = native.pipe(ours);
    opened.push(...pair);
    return pair;
  };
  try {
    const stdin = spec.stdin === undefined ? null : open("write");
    const stdout = open("read");
    const stderr = open("read");
    return {
      input: stdin === null ? null : new InputPipe(stdin[1]),
      outputs: [
        { channel: "stdout", fd: stdout[0] },
        { channel: "stderr", fd: stderr[0] },
      ],
      isTerminal: false,
      theirs: [...(stdin === null ? [] : [stdin[0]]), stdout[1], stderr[1]],
    };
  } catch (error) {
    for (const fd of opened) closeSync(fd);
    throw error;
  }
}

/** One terminal is all three streams of its program. */
function openTerminal({ native, sandbox }: ExecHost, size: TerminalSize): Pipes {
  if (sandbox.devptsFd < 0) throw sandboxGone();
  const { output, input, peer } = native.terminal(sandbox.devptsFd, size);
  return {
    input: new InputPipe(input),
    outputs: [{ channel: "stdout", fd: output }],
    isTerminal: true,
    theirs: [peer],
  };
}

function closeOurs(pipes: Pipes): void {
  pipes.input?.abandon();
  for (const { fd } of pipes.outputs) closeSync(fd);
}

/** Standard input, output and error are one terminal. */
function thrice(fds: readonly number[]): readonly number[] {
  return [...fds, ...fds, ...fds];
}

async function dropGroup({ sandbox, log }: ExecHost, group: ExecGroup): Promise<void> {
  try {
    await emptyGroup(group, { initPid: sandbox.pid, kill: () => group.kill() });
    await group.remove();
  } catch (error) {
    // The sandbox's own removal takes what is left, and fails loudly if it cannot.
    log.warn("group of a failed exec not removed", { error });
  }
}

interface Started {
  readonly id: number;
  readonly limits: Limits;
  readonly before: Tally;
  readonly group: ExecGroup;
  readonly pipes: Pipes;
  readonly spec: ExecSpec;
  readonly started: Report;
  readonly exited: Promise<Report | null>;
  readonly violated: Promise<Report>;
}

function assemble(host: ExecHost, made: Started): LocalExec {
  const { id, limits, before, group, pipes, spec, started, exited, violated } = made;
  const { native, sandbox, log } = host;
  const queue = new NoticeQueue();
  // The watch is made first, but nothing calls back before this function has returned.
  const execBox: { exec?: LocalExec } = {};
  const watch = new LimitWatch({
    native,
    sandbox: sandbox.groups,
    group,
    limits,
    workspaceFd: () => sandbox.workspaceFd,
    before,
    notify: (notice) => queue.push(notice),
    onTimeUp: (reason) => execBox.exec?.kill(reason),
  });
  const limitBytes = limits.output_kb * KIB;
  const terminal = pipes.isTerminal ? { fd: pipes.outputs[0]?.fd ?? -1 } : null;
  const outputs = pipes.outputs.map(({ channel, fd }) => {
    const reader = Bun.file(fd).stream().getReader();
    return new OutputStream({
      channel,
      reader: pipes.isTerminal ? terminalReader(reader) : reader,
      onEnd: () => {
        // Its number may be another's at once.
        if (terminal !== null) terminal.fd = -1;
        closeSync(fd);
      },
      drain: () => native.drain(fd),
      isReadable: () => native.isReadable(fd),
      limitBytes,
      queue,
      onTruncated: () => watch.hit("output_kb", { observed: limits.output_kb, sampled: false }),
    });
  });
  const exec = new LocalExec({
    id,
    native,
    sandbox,
    limits,
    log,
    group,
    watch,
    queue,
    outputs,
    input: pipes.input,
    terminal,
    started,
    exited,
    violated,
  });
  execBox.exec = exec;
  if (spec.stdin instanceof Uint8Array) feed(pipes.input, spec.stdin);
  return exec;
}

/** A program need not read its input: what it leaves is no error. */
function feed(input: InputPipe | null, bytes: Uint8Array): void {
  input?.write(bytes).catch(() => undefined);
  void input?.close();
}

/** What a failed step failed to do. */
function startOf({ executable }: ExecSpec): string {
  return `start ${JSON.stringify(executable.slice(0, 256))}`;
}

function execError(report: Report, spec: ExecSpec): CprgError {
  const op = startOf(spec);
  if (report.step === STEP_DIRECTORY) {
    return stepError(report, {
      op,
      subject: spec.directory ?? WORKSPACE,
      code: "failed_precondition",
      reason: "DIRECTORY",
    });
  }
  if (report.step !== STEP_EXECVE) return stepError(report, { op });
  const codes: Readonly<Record<number, readonly [ErrorCode, string]>> = {
    [ENOENT]: ["not_found", "PROGRAM_NOT_FOUND"],
    [ENOTDIR]: ["not_found", "PROGRAM_NOT_FOUND"],
    [EACCES]: ["permission_denied", "PROGRAM_NOT_EXECUTABLE"],
  };
  const [code, reason] = codes[report.errno] ?? ["failed_precondition", "PROGRAM_NOT_EXECUTABLE"];
  return stepError(report, { op, code, reason });
}
