import { expect, test } from "bun:test";
import { outcomeStatus } from "../../../src/core/outcome.ts";
import {
  isTerminal,
  REASONS,
  type Reason,
  STATUSES,
  statusOf,
  type TerminalStatus,
} from "../../../src/core/reasons.ts";

/** The table of the contract; `exit` depends on the code. */
const TABLE: Record<Exclude<Reason, "exit">, TerminalStatus> = {
  signal: "failed",
  seccomp_violation: "failed",
  wall_limit: "timed_out",
  cpu_limit: "timed_out",
  oom: "oom_killed",
  user: "cancelled",
  output_limit: "error",
  setup_failed: "error",
  interrupted: "error",
  shutdown: "error",
  idle: "error",
  lifetime: "error",
  worker_lost: "error",
  stale_epoch: "error",
  claim_failed: "error",
  runner_error: "error",
  result_not_serializable: "error",
  quarantined: "error",
  disk_full: "error",
  no_interpreter: "error",
};

test("REASONS are the closed set", () => {
  expect([...REASONS].sort()).toEqual(["exit", ...Object.keys(TABLE)].sort() as Reason[]);
});

test.each(Object.entries(TABLE))(
  "statusOf() %s is %s, whatever the exit code",
  (reason, status) => {
    for (const exitCode of [null, 0, 1, 137]) {
      expect(statusOf(reason as Reason, exitCode)).toBe(status);
    }
  },
);

test("statusOf() exit goes by the code: 137 is no memory limit, null no success", () => {
  expect(statusOf("exit", 0)).toBe("succeeded");
  for (const exitCode of [1, 124, 137, 255, -1, null]) {
    expect(statusOf("exit", exitCode)).toBe("failed");
  }
});

test("isTerminal() is true for all but queued and running", () => {
  expect(STATUSES.filter((status) => !isTerminal(status))).toEqual(["queued", "running"]);
  const reached = new Set(
    REASONS.flatMap((reason) => [0, 1].map((code) => statusOf(reason, code))),
  );
  expect([...reached].sort()).toEqual(STATUSES.filter(isTerminal).sort());
});

test("outcomeStatus() looks at reason and exit code alone", () => {
  const outcome = {
    exitCode: 0,
    signal: "SIGKILL",
    reason: "exit",
    limitsHit: [{ limit: "disk_mb", value: 1, observed: 2, sampled: true }],
    violations: [],
    usage: null,
    durationMs: 1,
    killed: 3,
  } as const;
  expect(outcomeStatus(outcome)).toBe("succeeded");
  expect(outcomeStatus({ ...outcome, reason: "oom", exitCode: null })).toBe("oom_killed");
});
