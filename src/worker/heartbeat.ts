/** Heartbeats of one stream: what the worker holds, what the control plane stands by, and its silence. */

import { loadavg } from "node:os";
import type { Mux } from "../bridge/contract.ts";
import { HEARTBEAT, HEARTBEAT_ACK, HEARTBEAT_NOTICE } from "../bridge/methods.ts";
import { SILENT_PERIODS, watchSilence } from "../bridge/silence.ts";
import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { Timer } from "../core/timer.ts";
import type { HeartbeatRequest } from "../gen/messages.ts";
import type { ClaimHolder } from "./claim-holder.ts";

/** How they are sent. */
export interface HeartbeatOptions {
  readonly mux: Mux;
  readonly holder: ClaimHolder;
  readonly clock: Clock;
  readonly startedMs: number;
  /** Seconds between two, as the control plane has said by now. */
  intervalSeconds(): number;
}

/**
 * Sends one at once and then one each interval, until it is stopped. Where they are answered, a stream
 * on which nothing comes for {@link SILENT_PERIODS} of them is closed with `deadline_exceeded` SILENT.
 */
export function startHeartbeats(options: HeartbeatOptions): { stop(): void } {
  const { mux, holder } = options;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let silence: Timer | undefined;
  let isStopped = false;
  const beat = (): void => {
    const isAnswered = mux.peer.has(HEARTBEAT_ACK);
    holder.countTtls(isAnswered);
    if (isAnswered) silence ??= leaveSilent(options);
    // An answer that does not come renews nothing; the loss of the stream is seen elsewhere.
    void send(options, isAnswered).catch(() => undefined);
    if (!isStopped) timer = setTimeout(beat, options.intervalSeconds() * 1000);
  };
  beat();
  return {
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
      silence?.clear();
    },
  };
}

function leaveSilent({ mux, intervalSeconds }: HeartbeatOptions): Timer {
  return watchSilence(mux, intervalSeconds() * SILENT_PERIODS * 1000, () =>
    mux.close(new CprgError("deadline_exceeded", "no frame for too long", { reason: "SILENT" })),
  );
}

async function send(options: HeartbeatOptions, isAnswered: boolean): Promise<void> {
  const { mux, holder, clock } = options;
  const request = requestOf(options);
  if (!isAnswered) {
    await mux.notify(HEARTBEAT_NOTICE, request);
    return;
  }
  const sentMs = clock.monotonicMs();
  const timeoutMs = options.intervalSeconds() * 1000;
  await holder.heard(sentMs, await mux.call(HEARTBEAT, request, { timeoutMs }));
}

function requestOf({ mux, holder, clock, startedMs }: HeartbeatOptions): HeartbeatRequest {
  const claims = holder.table.held();
  return {
    activeRequests: mux.servedCalls,
    taskId: claims[0]?.taskId ?? "",
    claims: [...claims],
    uptimeSeconds: Math.floor((clock.monotonicMs() - startedMs) / 1000),
    load: loadavg()[0] ?? 0,
  };
}
