/** `cprg run --server`: wires the client and the terminal together. */

import { requestJson, type ServerAccess } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { jobPath, outputBytes, type StreamedEvent } from "./client-stream.ts";
import type { ConfigInput } from "./config.ts";
import { engineFlagValues } from "./engine-flags.ts";
import { EXIT, exitCodeOfSignal } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import { jsonText } from "./output.ts";
import { languageRefusal } from "./run-language.ts";
import { RunOutput } from "./run-output.ts";
import { cancelRemote, followRemote, submitRemote } from "./run-remote.ts";
import { reportClamped, reportEnd, runExitCode } from "./run-report.ts";
import type { RunRequest } from "./run-request.ts";
import { takeSignals } from "./run-stop.ts";
import { checkPlace, saveExport } from "./save-export.ts";
import type { Terminal } from "./terminal.ts";

/** How a run is wanted. */
export interface RemoteWishes {
  readonly flags: {
    readonly json: boolean;
    readonly save: string | undefined;
    readonly out: string | undefined;
    readonly key: string | undefined;
    readonly ca: string | undefined;
    readonly "data-dir": string | undefined;
  } & ConfigInput["flags"];
  readonly terminal: Terminal;
  readonly server: string;
}

/** Runs a request on a server; returns the exit code. */
export async function runThere(request: RunRequest, wishes: RemoteWishes): Promise<number> {
  const { flags, terminal, server } = wishes;
  refuseLocalFlags(flags);
  if (flags.save !== undefined) await checkPlace(flags.save);
  const access = await serverAccess({ ...flags, server }, terminal);
  const job = await submitRemote(access, request).catch((error: unknown) => {
    throw languageRefusal(error, request.language, '"cprg languages" lists those of the server');
  });
  await reportClamped(request.limits, job.limits, terminal);

  const leave = new AbortController();
  let failedCancel: { readonly error: unknown } | null = null;
  const cancel = (): void => {
    cancelRemote(access, job.id).catch((error: unknown) => {
      failedCancel ??= { error };
      leave.abort();
    });
  };
  const output = new RunOutput(terminal, cancel);
  using signals = takeSignals(terminal, {
    cancel,
    kill: () => {
      output.abandon();
      leave.abort();
    },
  });
  const end = await followRemote(access, {
    path: jobPath(job.id),
    signal: leave.signal,
    show: async (event) => {
      if (!flags.json) await showOutput(event, output);
    },
  });
  if (failedCancel !== null) throw (failedCancel as { error: unknown }).error;
  if (end !== null && flags.save !== undefined) await saveExport(access, job.id, flags.save);
  if (output.isClosed) return EXIT.closedOutput;
  if (end === null) return exitCodeOfSignal(signals.first ?? "SIGINT");
  if (flags.json) await printResult(access, job.id, terminal);
  const circumstances = { command: "run", limits: job.limits, stoppedBy: signals.first };
  await reportEnd(end, circumstances, terminal);
  return runExitCode(end, circumstances);
}

/** What only a run on this machine heeds is not to be dropped without a word. */
function refuseLocalFlags({ "data-dir": _, ...flags }: RemoteWishes["flags"]): void {
  const local = { ...engineFlagValues(flags), out: flags.out };
  const given = Object.entries<unknown>(local).find(
    ([, value]) =>
      value !== undefined && value !== false && !(Array.isArray(value) && value.length === 0),
  );
  if (given === undefined) return;
  throw usageError(`Cannot use --${given[0]} with --server: it is for runs on this machine`);
}

async function showOutput(event: StreamedEvent, output: RunOutput): Promise<void> {
  if (event.kind !== "stdout" && event.kind !== "stderr") return;
  await output.write(event.kind, outputBytes(event));
}

async function printResult(access: ServerAccess, id: string, terminal: Terminal): Promise<void> {
  const { body } = await requestJson(access, { path: `${jobPath(id)}/result` });
  await terminal.stdout.write(jsonText(body));
}
