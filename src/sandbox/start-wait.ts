/** Waiting for the answer to a request to start a program, which other programs inside can hold up. */

import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import type { ExecGroup } from "./cgroup.ts";
import { killUntil } from "./kill-until.ts";
import type { Report } from "./layout.ts";
import type { Reports } from "./reports.ts";
import type { Sandbox } from "./sandbox.ts";
import { encodeSignal } from "./spawn-plan.ts";

const SIGKILL = 9;
/** Longest between the request and its answer. */
const START_TIMEOUT_MS = 20_000;

/** What is started, and who may give it up. */
export interface Starting {
  /** As process 1 knows it. */
  readonly id: number;
  readonly sandbox: Sandbox;
  readonly log: Log;
  readonly group: ExecGroup;
  readonly reports: Reports;
  /** The lease ends. */
  readonly ending: AbortSignal;
  /** The caller's own. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Waits for the report that it runs, or that it never will; null where the sandbox ends first.
 *
 * @throws CprgError `canceled` or `unavailable`, once what was given up has ended
 */
export async function answerOf(starting: Starting): Promise<Report | null> {
  const { reports, ending, signal } = starting;
  const given = Promise.withResolvers<CprgError>();
  const timer = setTimeout(() => given.resolve(tooSlow()), START_TIMEOUT_MS);
  const any = AbortSignal.any(signal === undefined ? [ending] : [ending, signal]);
  const onAbort = (): void => given.resolve(startCanceled(ending.aborted));
  if (any.aborted) onAbort();
  else any.addEventListener("abort", onAbort, { once: true });
  try {
    const first = await Promise.race([given.promise, reports.started]);
    if (!CprgError.is(first)) return first;
    await endStart(starting);
    throw first;
  } finally {
    clearTimeout(timer);
    any.removeEventListener("abort", onAbort);
  }
}

/**
 * Kills what has joined its group, and what has not: where process 1 and programs have one id on the
 * host, a program can stop the process before it joins.
 */
async function endStart({ id, sandbox, log, group, reports }: Starting): Promise<void> {
  const destroyed = Promise.withResolvers<void>();
  const destroy = (error?: unknown): void => {
    log.error("program neither starts nor dies, ending its sandbox", { error });
    const ending = sandbox.destroy();
    ending
      .catch((cause: unknown) => log.error("sandbox stuck", { cause }))
      .finally(destroyed.resolve);
  };
  let isDestroying = false;
  await killUntil(reports.ended, {
    kill: () => {
      if (isDestroying) return;
      killOutside(sandbox, id);
      try {
        group.kill();
      } catch (error) {
        isDestroying = true;
        destroy(error);
      }
    },
    giveUp: () => {
      if (!isDestroying) destroy();
    },
  });
  await Promise.race([reports.ended, destroyed.promise]);
}

function killOutside({ channel }: Sandbox, id: number): void {
  try {
    channel.trySend(encodeSignal(id, SIGKILL), []);
  } catch {
    // The sandbox has ended, and the process with it.
  }
}

function startCanceled(isEnding: boolean): CprgError {
  const why = isEnding ? "its sandbox is being removed" : "cancelled";
  return new CprgError("canceled", `Cannot start a program: ${why}`, {
    ...(isEnding ? { reason: "SHUTDOWN" } : {}),
  });
}

function tooSlow(): CprgError {
  return new CprgError(
    "unavailable",
    `Cannot start a program: no answer after ${START_TIMEOUT_MS} ms`,
    {
      reason: "START_TIMEOUT",
      hint: "A program in the sandbox stops others, or the host is overloaded",
    },
  );
}
