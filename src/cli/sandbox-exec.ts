/** `cprg sandbox exec`: one program in an open sandbox, as `cprg run` runs one in its own. */

import { CprgError } from "../core/errors.ts";
import { asAnswer } from "./answers.ts";
import { requestJson, type ServerAccess, sendBytes } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { outputBytes } from "./client-stream.ts";
import { EXIT, exitCodeOfSignal } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import { jsonText } from "./output.ts";
import { parseRunLimits } from "./run-limits.ts";
import { RunOutput } from "./run-output.ts";
import { followRemote } from "./run-remote.ts";
import { reportEnd, runExitCode } from "./run-report.ts";
import { takeSignals } from "./run-stop.ts";
import {
  checkCount,
  execPath,
  idIn,
  pairsOf,
  parseSandboxId,
  type SandboxContext,
  sandboxPath,
} from "./sandbox-context.ts";

const CANCEL_TIMEOUT_MS = 120_000;
/** Bytes of input that go into one request. */
export const INPUT_BYTES_MAX = 256 * 1024;

/** Runs a program and passes its output on; returns its exit code. */
export async function execInSandbox(context: SandboxContext): Promise<number> {
  checkCount(context, 1, true);
  const { flags, args, rest, terminal } = context;
  const id = parseSandboxId(args[0]);
  if (rest === null || rest.length === 0) {
    throw usageError("Cannot run nothing: the program goes after --");
  }
  const access = await serverAccess(flags, terminal);
  const started = await startExec(access, id, {
    argv: rest,
    env: pairsOf(flags.env, "--env"),
    limits: parseRunLimits({ limit: flags.limit, timeout: undefined, mem: undefined }),
    stdin_open: flags.stdin,
  });
  return await follow(context, { access, started });
}

/** An exec on a server. */
export interface RemoteExec {
  readonly id: string;
  readonly limits: Readonly<Record<string, unknown>>;
}

/** Starts an exec without waiting for it. */
export async function startExec(
  access: ServerAccess,
  sandboxId: string,
  body: object,
): Promise<RemoteExec> {
  const path = `${sandboxPath(sandboxId)}/execs?wait_seconds=0`;
  const { body: answer } = await requestJson(access, { method: "POST", path, body });
  const id = idIn(answer, "exec_id");
  if (id === "") throw new CprgError("data_loss", "Cannot follow the exec: the answer names none");
  return { id, limits: asAnswer(asAnswer(answer)["limits"]) };
}

/** Asks the server to end an exec; one that has ended meanwhile is as well. */
export async function cancelExec(access: ServerAccess, id: string): Promise<void> {
  try {
    const request = { path: execPath(id), timeoutMs: CANCEL_TIMEOUT_MS };
    await requestJson(access, { method: "DELETE", ...request });
  } catch (error) {
    if (!CprgError.is(error) || error.code !== "aborted") throw error;
  }
}

/** Sends input in order until it ends, then its end; what the exec no longer takes is dropped. */
export async function pumpInput(
  access: ServerAccess,
  id: string,
  input: AsyncIterable<Uint8Array>,
): Promise<void> {
  const path = `${execPath(id)}/input`;
  try {
    for await (const chunk of input) {
      for (let at = 0; at < chunk.length; at += INPUT_BYTES_MAX) {
        const body = chunk.slice(at, at + INPUT_BYTES_MAX);
        await send(access, path, body);
      }
    }
    await sendBytes(access, { method: "POST", path: `${path}?eof=true` });
  } catch (error) {
    // It has ended, or closed its input: neither is a failure of ours.
    const isOver =
      CprgError.is(error) && (error.code === "aborted" || error.code === "failed_precondition");
    if (!isOver) throw error;
  }
}

/** Tries again while the program does not read what it has. */
async function send(access: ServerAccess, path: string, body: Uint8Array<ArrayBuffer>) {
  for (;;) {
    try {
      await sendBytes(access, { method: "POST", path, body });
      return;
    } catch (error) {
      if (!CprgError.is(error) || error.reason !== "INPUT_FULL") throw error;
      await Bun.sleep(INPUT_PAUSE_MS);
    }
  }
}

const INPUT_PAUSE_MS = 100;

async function follow(
  { flags, terminal }: SandboxContext,
  { access, started }: { readonly access: ServerAccess; readonly started: RemoteExec },
): Promise<number> {
  const leave = new AbortController();
  const failures: unknown[] = [];
  const fail = (error: unknown): void => {
    failures.push(error);
    leave.abort();
  };
  const cancel = (): void => void cancelExec(access, started.id).catch(fail);
  const output = new RunOutput(terminal, cancel);
  using signals = takeSignals(terminal, {
    cancel,
    kill: () => {
      output.abandon();
      leave.abort();
    },
  });
  if (flags.stdin) void pumpInput(access, started.id, terminal.readStdin()).catch(fail);
  const end = await followRemote(access, {
    path: execPath(started.id),
    signal: leave.signal,
    show: async (event) => {
      if (flags.json || (event.kind !== "stdout" && event.kind !== "stderr")) return;
      await output.write(event.kind, outputBytes(event));
    },
  });
  if (failures.length > 0) throw failures[0];
  if (output.isClosed) return EXIT.closedOutput;
  if (end === null) return exitCodeOfSignal(signals.first ?? "SIGINT");
  if (flags.json) {
    const { body } = await requestJson(access, { path: `${execPath(started.id)}/result` });
    await terminal.stdout.write(jsonText(body));
  }
  const circumstances = {
    command: "sandbox exec",
    limits: started.limits,
    stoppedBy: signals.first,
  };
  await reportEnd(end, circumstances, terminal);
  return runExitCode(end, circumstances);
}
