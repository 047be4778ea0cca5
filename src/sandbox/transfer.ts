/**
 * Moving an archive stream into or out of a sandbox through a process inside, which has the
 * program's rights and whose memory is the sandbox's.
 */

import { closeSync } from "node:fs";
import { CprgError } from "../core/errors.ts";
import { startTimer } from "../core/timer.ts";
import { nextTurn } from "../core/turn.ts";
import type { EntrySink, TransferOptions } from "../provider/contract.ts";
import { decodeArchive } from "./archive.ts";
import { descriptorError } from "./descriptor-error.ts";
import { sandboxGone } from "./init-channel.ts";
import { InputPipe } from "./input.ts";
import { killUntil } from "./kill-until.ts";
import { REPORT, type Report } from "./layout.ts";
import type { Native } from "./native.ts";
import type { ByteReader } from "./output.ts";
import { listenFor, type Reports } from "./reports.ts";
import type { Sandbox } from "./sandbox.ts";
import { encodeSignal, encodeTransfer } from "./spawn-plan.ts";
import { stepError } from "./steps.ts";

const SIGKILL = 9;
const SIGTERM = 15;
const SIGCONT = 18;
/** Tries to end a transfer by asking, five seconds, before it is killed, and what it made stays. */
const ASKS_MAX = 250;
const ENOENT = 2;
const ENOSPC = 28;
/** Bytes read before the event loop gets its turn. */
const YIELD_BYTES = 256 * 1024;

/** Where a transfer goes through. */
export interface TransferHost {
  readonly native: Native;
  readonly sandbox: Sandbox;
}

/** One transfer. */
export interface Transfer {
  readonly id: number;
  /** Absolute, inside. */
  readonly path: string;
  readonly isMerge?: boolean;
  readonly options?: TransferOptions;
}

/**
 * Puts an archive stream at a path inside. When that ends early, the stream is not waited for: its
 * owner makes it end.
 *
 * @throws CprgError `canceled`, `deadline_exceeded`, or naming the entry that failed; then nothing
 *   half-made stays
 */
export async function unpack(
  host: TransferHost,
  transfer: Transfer,
  stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<void> {
  const [theirs, ours] = openPipe(host, "write", `put files into ${transfer.path}`);
  const pipe = new InputPipe(ours);
  const running = await begin(host, { ...transfer, type: "unpack", theirs }).catch((error) => {
    pipe.abandon();
    throw error;
  });
  const stop = stopOn(transfer.options, () => {
    running.terminate();
    pipe.abandon();
  });
  const fed = feed(pipe, stream);
  try {
    const report = await running.reports.ended;
    pipe.abandon();
    // A source that failed has said so before the report; one that has stalled may never say more.
    const failure = await Promise.race([fed, nextTurn().then(() => null)]);
    if (!isDone(report)) stop.check();
    checkReport(report, transfer, "put files into");
    if (failure !== null) throw failure.error;
  } finally {
    stop.dispose();
  }
}

/** Writes the stream; what goes wrong is returned, because the report explains it better. */
async function feed(
  pipe: InputPipe,
  stream: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<{ readonly error: unknown } | null> {
  try {
    for await (const bytes of stream) await pipe.write(bytes);
    return null;
  } catch (error) {
    return { error };
  } finally {
    await pipe.close();
  }
}

/**
 * Takes what is at a path inside and hands it to a sink.
 *
 * @throws CprgError as {@link unpack}
 */
export async function pack(host: TransferHost, transfer: Transfer, sink: EntrySink): Promise<void> {
  const [ours, theirs] = openPipe(host, "read", `take files out of ${transfer.path}`);
  const running = await begin(host, { ...transfer, type: "pack", theirs }).catch((error) => {
    closeSync(ours);
    throw error;
  });
  const reader = Bun.file(ours).stream().getReader();
  const stop = stopOn(transfer.options, () => {
    running.terminate();
    reader.cancel().catch(() => undefined);
  });
  try {
    // A sink that takes nothing must not hold up what stops the transfer.
    const decoded = await Promise.race([
      decodeArchive(chunksOf(reader), sink).then(
        () => null,
        (error: unknown) => ({ error }),
      ),
      stop.stopped,
    ]);
    if (decoded !== null) running.terminate();
    await reader.cancel();
    const report = await running.reports.ended;
    stop.check();
    checkReport(report, transfer, "take files out of", decoded);
    if (decoded !== null) throw decoded.error;
  } finally {
    stop.dispose();
    closeSync(ours);
  }
}

/**
 * Removes what is at a path inside, and all beneath it; nothing there is no error.
 *
 * @throws CprgError as {@link unpack}
 */
export async function remove(host: TransferHost, transfer: Transfer): Promise<void> {
  const running = await begin(host, { ...transfer, type: "remove", theirs: null });
  const stop = stopOn(transfer.options, () => running.terminate());
  try {
    const report = await running.reports.ended;
    if (!isDone(report)) stop.check();
    checkReport(report, transfer, "remove files of");
  } finally {
    stop.dispose();
  }
}

function openPipe({ native }: TransferHost, ours: "read" | "write", op: string) {
  try {
    return native.pipe(ours);
  } catch (error) {
    throw descriptorError(error, op);
  }
}

async function* chunksOf(reader: Pick<ByteReader, "read">): AsyncGenerator<Uint8Array> {
  let sinceYield = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done || value === undefined) return;
    yield value;
    sinceYield += value.length;
    if (sinceYield < YIELD_BYTES) continue;
    sinceYield = 0;
    await nextTurn();
  }
}

interface Running {
  readonly reports: Reports;
  /** Asks the process inside to stop and to remove what it has made so far; ends it in any case. */
  terminate(): void;
}

async function begin(
  { sandbox }: TransferHost,
  request: Transfer & { type: "pack" | "unpack" | "remove"; readonly theirs: number | null },
): Promise<Running> {
  const { id, type, path, isMerge, theirs } = request;
  const { channel } = sandbox;
  const reports = listenFor(channel, id);
  try {
    const fds = theirs === null ? [] : [theirs];
    await channel.send(encodeTransfer({ id, type, path, isMerge: isMerge ?? false }), fds);
  } finally {
    if (theirs !== null) closeSync(theirs);
  }
  let isTerminating = false;
  return {
    reports,
    terminate: () => {
      if (isTerminating) return;
      isTerminating = true;
      void killUntil(reports.ended, {
        kill: (tries) => sendEnd(sandbox, id, tries < ASKS_MAX ? SIGTERM : SIGKILL),
        giveUp: () => void sandbox.destroy().catch(() => undefined),
      });
    },
  };
}

/** A program inside may have stopped it: it then hears nothing before SIGCONT but SIGKILL. */
function sendEnd({ channel }: Sandbox, id: number, signal: number): void {
  try {
    for (const each of [signal, SIGCONT]) channel.trySend(encodeSignal(id, each), []);
  } catch {
    // The sandbox has ended, and the transfer with it.
  }
}

/** Watches the caller's signal and deadline. */
function stopOn(options: TransferOptions | undefined, stop: () => void) {
  let error: CprgError | null = null;
  const stopped = Promise.withResolvers<{ readonly error: CprgError }>();
  const halt = (reason: CprgError): void => {
    if (error !== null) return;
    error = reason;
    stop();
    stopped.resolve({ error: reason });
  };
  const onAbort = (): void => halt(new CprgError("canceled", "The transfer was cancelled"));
  const { signal, deadlineMs } = options ?? {};
  const timer =
    deadlineMs === undefined
      ? null
      : startTimer(deadlineMs, () =>
          halt(
            new CprgError("deadline_exceeded", `The transfer took longer than ${deadlineMs} ms`),
          ),
        );
  if (signal?.aborted) onAbort();
  else signal?.addEventListener("abort", onAbort, { once: true });
  return {
    /** Resolves with why, when it is stopped. */
    stopped: stopped.promise,
    /** @throws CprgError when it was stopped */
    check: (): void => {
      if (error !== null) throw error;
    },
    dispose: (): void => {
      timer?.clear();
      signal?.removeEventListener("abort", onAbort);
    },
  };
}

/** Whether everything is where it was to be: then a stop came too late. */
function isDone(report: Report | null): boolean {
  return report?.type === REPORT.transferred && report.errno === 0;
}

/** A reader of ours that failed cuts the stream: then its error counts, not the cut. */
function checkReport(
  report: Report | null,
  { path }: Transfer,
  verb: string,
  decoded: { readonly error: unknown } | null = null,
): void {
  if (report === null) throw sandboxGone();
  if (isDone(report)) return;
  if (decoded !== null && CprgError.is(decoded.error) && decoded.error.code !== "data_loss") return;
  const op = `${verb} the sandbox`;
  const subject = path.slice(0, 256);
  if (report.errno === ENOENT) {
    throw stepError(report, { op, subject, code: "not_found", reason: "PATH_NOT_FOUND" });
  }
  if (report.errno === ENOSPC) {
    throw stepError(report, { op, subject, code: "resource_exhausted", reason: "SANDBOX_FULL" });
  }
  throw stepError(report, { op, subject, reason: "TRANSFER" });
}
