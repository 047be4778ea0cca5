import { describe, expect, test } from "bun:test";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import type { LimitHit } from "../../../src/core/outcome.ts";
import {
  decideOutcome,
  isUnnamedViolation,
  type OutcomeFacts,
} from "../../../src/sandbox/exec-outcome.ts";
import type { Report } from "../../../src/sandbox/layout.ts";

const report = (fields: Partial<Report>): Report => ({
  type: 5,
  id: 1,
  step: 0,
  index: 0,
  errno: 0,
  code: 0,
  signal: 0,
  pid: 2,
  userUs: 0,
  systemUs: 0,
  maxRssBytes: 0,
  atNs: 2_000_000_000n,
  entries: 0,
  bytes: 0,
  ...fields,
});

const facts = (fields: Partial<OutcomeFacts>): OutcomeFacts => {
  const hits: LimitHit[] = [];
  return {
    main: { type: "ended", report: report({}) },
    started: report({ type: 3, atNs: 1_500_000_000n }),
    endNs: 2_000_000_000n,
    request: null,
    killSentNs: null,
    counters: { oomKills: 0, sandboxOomKills: 0, cpuUs: 1500, memoryPeakBytes: 7, pidsPeak: 3 },
    limits: DEFAULT_LIMITS,
    watch: {
      hits,
      hit: (limit, seen) => hits.push({ limit, value: DEFAULT_LIMITS[limit], ...seen }),
    },
    violations: [],
    killed: 0,
    ...fields,
  };
};
const killed = (signal: number, atNs = 2_000_000_000n): OutcomeFacts["main"] => ({
  type: "ended",
  report: report({ code: -1, signal, atNs }),
});
const oom = { oomKills: 1, sandboxOomKills: 1, cpuUs: 0, memoryPeakBytes: 7, pidsPeak: 3 };

describe("decideOutcome()", () => {
  test("takes code, signal, time and usage from the reports and counters", () => {
    expect(decideOutcome(facts({}))).toEqual({
      exitCode: 0,
      signal: null,
      reason: "exit",
      limitsHit: [],
      violations: [],
      usage: { cpu_ms: 2, memory_peak_bytes: 7, pids_peak: 3 },
      durationMs: 500,
      killed: 0,
    });
    expect(decideOutcome(facts({ main: killed(6) }))).toMatchObject({
      exitCode: null,
      signal: "SIGABRT",
      reason: "signal",
    });
  });

  const table: readonly (readonly [string, Partial<OutcomeFacts>, string])[] = [
    ["SIGKILL with a risen counter is oom", { main: killed(9), counters: oom }, "oom"],
    ["SIGKILL without one is a signal", { main: killed(9) }, "signal"],
    [
      "SIGKILL with a counter that rose for another program is a signal",
      { main: killed(9), counters: { ...oom, oomKills: 0 } },
      "signal",
    ],
    [
      "a lost sandbox whose process 1 alone was killed for memory is oom",
      {
        main: { type: "lost", death: { code: null, signal: 9 } },
        counters: { ...oom, oomKills: 0 },
      },
      "oom",
    ],
    ["an exit with a risen counter is an exit", { counters: oom }, "exit"],
    [
      "another signal with a risen counter is a signal",
      { main: killed(11), counters: oom },
      "signal",
    ],
    [
      "a death after our kill has our reason",
      { main: killed(9), counters: oom, request: { reason: "wall_limit", atNs: 1_900_000_000n } },
      "wall_limit",
    ],
    [
      "a death before our kill keeps its own",
      {
        main: killed(9, 1_800_000_000n),
        counters: oom,
        request: { reason: "user", atNs: 1_900_000_000n },
      },
      "oom",
    ],
    [
      "an exit in the grace after our signal has our reason",
      { request: { reason: "user", atNs: 1_900_000_000n } },
      "user",
    ],
    ["an exit before it is an exit", { request: { reason: "user", atNs: 2_100_000_000n } }, "exit"],
    [
      "a lost sandbox with a risen counter is oom",
      { main: { type: "lost", death: { code: null, signal: 9 } }, counters: oom },
      "oom",
    ],
    [
      "a lost sandbox that did not die of SIGKILL is not oom",
      { main: { type: "lost", death: { code: 1, signal: null } }, counters: oom },
      "setup_failed",
    ],
    [
      "SIGKILL that the caller sent is a signal, whatever the counter says",
      { main: killed(9), counters: oom, killSentNs: 1_900_000_000n },
      "signal",
    ],
    [
      "SIGKILL before the caller's was sent is oom",
      { main: killed(9, 1_800_000_000n), counters: oom, killSentNs: 1_900_000_000n },
      "oom",
    ],
    [
      "a lost sandbox that we ended has our reason",
      {
        main: { type: "lost", death: { code: null, signal: 9 } },
        request: { reason: "shutdown", atNs: 1n },
      },
      "shutdown",
    ],
    [
      "a lost sandbox otherwise is no exit at all",
      { main: { type: "lost", death: { code: null, signal: 9 } } },
      "setup_failed",
    ],
  ];
  for (const [name, fields, reason] of table) {
    test(name, () => {
      const outcome = decideOutcome(facts(fields));
      expect(outcome.reason).toBe(reason as never);
      if (fields.main?.type === "lost") {
        expect([outcome.exitCode, outcome.signal]).toEqual([null, null]);
      }
      expect(outcome.error !== undefined).toBe(reason === "setup_failed");
    });
  }

  test.each([
    ["none", 0, "signal"],
    ["one that notifies", 1, "signal"],
    ["one that kills", 2, "seccomp_violation"],
  ] as const)("SIGSYS under a filter, %s", (_name, code, reason) => {
    const started = report({ type: 3, atNs: 1_500_000_000n, code });
    expect(decideOutcome(facts({ main: killed(31), started })).reason).toBe(reason);
    expect(isUnnamedViolation(started, killed(31))).toBe(reason === "seccomp_violation");
    expect(isUnnamedViolation(started, killed(9))).toBe(false);
    expect(isUnnamedViolation(started, { type: "ended", report: report({}) })).toBe(false);
  });

  test("a violation is in the outcome, whatever ended the program first", () => {
    const violations = [{ type: "seccomp_violation", syscall: "ptrace" }] as const;
    const request = { reason: "seccomp_violation", atNs: 1_900_000_000n } as const;
    expect(decideOutcome(facts({ main: killed(9), violations, request }))).toMatchObject({
      reason: "seccomp_violation",
      violations,
    });
    const cancel = { reason: "user", atNs: 1_800_000_000n } as const;
    expect(decideOutcome(facts({ main: killed(9), violations, request: cancel }))).toMatchObject({
      reason: "user",
      violations,
    });
  });

  test("a lost sandbox has lasted until it was known to be", () => {
    const main = { type: "lost", death: { code: null, signal: 9 } } as const;
    expect(decideOutcome(facts({ main, endNs: 4_000_000_000n })).durationMs).toBe(2500);
  });

  test("RLIMIT_CPU's signal is the CPU limit when that much was used", () => {
    const counters = { ...oom, oomKills: 0, cpuUs: DEFAULT_LIMITS.cpu_seconds * 1e6 };
    expect(decideOutcome(facts({ main: killed(24), counters }))).toMatchObject({
      reason: "cpu_limit",
      limitsHit: [{ limit: "cpu_seconds", value: DEFAULT_LIMITS.cpu_seconds, sampled: false }],
    });
    expect(decideOutcome(facts({ main: killed(24) })).reason).toBe("signal");
  });
});
