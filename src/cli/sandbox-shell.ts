/** `cprg sandbox shell`: this terminal for a program in a sandbox. */

import { requestJson, type ServerAccess } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { outputBytes } from "./client-stream.ts";
import { EXIT, exitCodeOfSignal } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import type { RawTerminal } from "./raw-terminal.ts";
import { RunOutput } from "./run-output.ts";
import { followRemote } from "./run-remote.ts";
import { reportEnd, runExitCode } from "./run-report.ts";
import { takeSignals } from "./run-stop.ts";
import {
  checkCount,
  endSandbox,
  execPath,
  idIn,
  pairsOf,
  parseSandboxId,
  type SandboxContext,
} from "./sandbox-context.ts";
import { openSandbox } from "./sandbox-create.ts";
import { cancelExec, pumpInput, type RemoteExec, startExec } from "./sandbox-exec.ts";

/** bash where the host has it, so that a shell has history and completion. */
const SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i"];
const TERM_NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/;

/** Runs a program on this terminal; returns its exit code. */
export async function shellInSandbox(context: SandboxContext): Promise<number> {
  checkCount(context, 1, true);
  const { flags, args, terminal } = context;
  if (flags.json) throw usageError("Cannot use --json with shell: its output is the program's");
  const given = args[0] === undefined ? null : parseSandboxId(args[0]);
  const access = await serverAccess(flags, terminal);
  const raw = terminal.raw();
  if (raw === null) {
    throw usageError(
      "Cannot open a shell: standard input and output are no terminal",
      "cprg sandbox exec runs programs without one",
    );
  }
  // Given back before anything is printed, whatever happens meanwhile.
  let end: () => Promise<number>;
  {
    using _raw = raw;
    end = await inSandbox(access, context, { given, raw });
  }
  return await end();
}

async function inSandbox(
  access: ServerAccess,
  context: SandboxContext,
  { given, raw }: { readonly given: string | null; readonly raw: RawTerminal },
): Promise<() => Promise<number>> {
  if (given !== null) return await onTerminal(access, context, { id: given, raw });
  const id = idIn(await openSandbox(access, context.flags), "sandbox_id");
  try {
    return await onTerminal(access, context, { id, raw });
  } finally {
    // It may have ended by itself: idle, or with its lifetime.
    await endSandbox(access, id).catch(() => undefined);
  }
}

async function onTerminal(
  access: ServerAccess,
  { flags, rest, terminal }: SandboxContext,
  { id, raw }: { readonly id: string; readonly raw: RawTerminal },
): Promise<() => Promise<number>> {
  const term = terminal.env["TERM"] ?? "";
  const exec = await startExec(access, id, {
    argv: rest === null || rest.length === 0 ? SHELL : rest,
    tty: raw.size,
    env: { ...(TERM_NAME.test(term) ? { TERM: term } : {}), ...pairsOf(flags.env, "--env") },
  });
  return await follow(access, exec, { terminal, raw });
}

async function follow(
  access: ServerAccess,
  exec: RemoteExec,
  { terminal, raw }: { readonly terminal: SandboxContext["terminal"]; readonly raw: RawTerminal },
): Promise<() => Promise<number>> {
  const leave = new AbortController();
  const failures: unknown[] = [];
  const fail = (error: unknown): void => {
    failures.push(error);
    leave.abort();
  };
  const cancel = (): void => void cancelExec(access, exec.id).catch(fail);
  const output = new RunOutput(terminal, cancel);
  // Keys send none in raw mode: these come from elsewhere, or from a terminal that is gone.
  using signals = takeSignals(terminal, { cancel, kill: () => leave.abort() });
  raw.onResize((size) => {
    const request = { method: "POST", path: `${execPath(exec.id)}/resize`, body: size } as const;
    // Too late when it has ended; and the next change says it again.
    requestJson(access, request).catch(() => undefined);
  });
  void pumpInput(access, exec.id, terminal.readStdin()).catch(fail);
  const end = await followRemote(access, {
    path: execPath(exec.id),
    signal: leave.signal,
    show: async (event) => {
      if (event.kind === "stdout") await output.write("stdout", outputBytes(event));
    },
  });
  await terminal.stdout.drain();
  return async () => {
    if (failures.length > 0) throw failures[0];
    if (output.isClosed) return EXIT.closedOutput;
    if (end === null) return exitCodeOfSignal(signals.first ?? "SIGHUP");
    const circumstances = {
      command: "sandbox shell",
      limits: exec.limits,
      stoppedBy: signals.first,
    };
    await reportEnd(end, circumstances, terminal);
    return runExitCode(end, circumstances);
  };
}
