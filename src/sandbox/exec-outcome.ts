/** How an exec ended, from the wait status, the counters and what was asked of it; pure. */

import type { Limits } from "../core/limits.ts";
import type { LimitHit, Outcome, Violation } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { FILTER, type Report } from "./layout.ts";
import type { Death } from "./native.ts";
import { signalName } from "./steps.ts";
import type { Counters } from "./watch.ts";

const SIGKILL = 9;
const SIGXCPU = 24;
const SIGSYS = 31;

/** The end of the main process: its own, or that of the sandbox around it. */
export type MainEnd =
  | { readonly type: "ended"; readonly report: Report }
  | { readonly type: "lost"; readonly death: Death };

/** Everything that decides. */
export interface OutcomeFacts {
  readonly main: MainEnd;
  readonly started: Report;
  /** When it ended, or was known to be lost. */
  readonly endNs: bigint;
  /** Why we ended it, if we did, and when. */
  readonly request: { readonly reason: Reason; readonly atNs: bigint } | null;
  /** When a SIGKILL of the caller's was first sent to it, if one was. */
  readonly killSentNs: bigint | null;
  readonly counters: Counters;
  readonly limits: Limits;
  /** Notes hits that only the end shows, and knows all. */
  readonly watch: {
    hit(limit: "cpu_seconds", seen: Pick<LimitHit, "observed" | "sampled">): void;
    readonly hits: readonly LimitHit[];
  };
  /** What it was seen to try, named or not. */
  readonly violations: readonly Violation[];
  readonly killed: number;
}

/**
 * Whether the kernel killed it over a call, without saying which. Only where a filter kills instead
 * of asking: everywhere else SIGSYS is a signal that anyone can send.
 */
export function isUnnamedViolation(started: Report, main: MainEnd): boolean {
  return started.code === FILTER.kill && main.type === "ended" && main.report.signal === SIGSYS;
}

/** The outcome; it invents nothing: what is not known is null. */
export function decideOutcome(facts: OutcomeFacts): Outcome {
  const { main, started, counters, watch, violations, killed } = facts;
  const report = main.type === "ended" ? main.report : null;
  const reason = decideReason(facts);
  const cpuUs = Math.max(counters.cpuUs, report === null ? 0 : report.userUs + report.systemUs);
  return {
    exitCode: report === null || report.signal !== 0 ? null : report.code,
    signal: report === null || report.signal === 0 ? null : signalName(report.signal),
    reason,
    limitsHit: watch.hits,
    violations,
    usage: {
      cpu_ms: Math.round(cpuUs / 1000),
      memory_peak_bytes: counters.memoryPeakBytes,
      pids_peak: counters.pidsPeak,
    },
    durationMs: Math.round(Number(facts.endNs - started.atNs) / 1e3) / 1e3,
    killed,
    ...(reason === "setup_failed" && main.type === "lost" ? { error: lost(main.death) } : {}),
  };
}

function decideReason(facts: OutcomeFacts): Reason {
  const { main, started, request, counters } = facts;
  if (main.type === "lost") {
    const isOom = main.death.signal === SIGKILL && counters.sandboxOomKills > 0;
    return request?.reason ?? (isOom ? "oom" : "setup_failed");
  }
  const { report } = main;
  if (request !== null && report.atNs >= request.atNs) return request.reason;
  if (report.signal === 0) return "exit";
  if (isUnnamedViolation(started, main)) return "seccomp_violation";
  const isAskedFor = facts.killSentNs !== null && report.atNs >= facts.killSentNs;
  if (report.signal === SIGKILL && counters.oomKills > 0 && !isAskedFor) return "oom";
  if (isCpuLimit(facts, report)) return "cpu_limit";
  return "signal";
}

/** RLIMIT_CPU ended it before the group's counter was looked at. */
function isCpuLimit({ counters, limits, watch }: OutcomeFacts, report: Report): boolean {
  const isItsSignal = report.signal === SIGXCPU || report.signal === SIGKILL;
  const usedMs = Math.max(counters.cpuUs, report.userUs + report.systemUs) / 1000;
  if (!isItsSignal || usedMs < limits.cpu_seconds * 1000) return false;
  watch.hit("cpu_seconds", { observed: usedMs / 1000, sampled: false });
  return true;
}

function lost(death: Death): NonNullable<Outcome["error"]> {
  const how =
    death.signal === null ? `exited with ${death.code}` : `died of ${signalName(death.signal)}`;
  return {
    message: `The sandbox ended while the program ran: its process 1 ${how}`,
    hint: "See the kernel's log (dmesg)",
  };
}
