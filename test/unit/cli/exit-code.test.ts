import { describe, expect, test } from "bun:test";
import {
  EXIT,
  exitCodeOfError,
  exitCodeOfRun,
  exitCodeOfSignal,
  UNREACHABLE,
} from "../../../src/cli/exit-code.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { REASONS, type Reason } from "../../../src/core/reasons.ts";

describe("exitCodeOfRun()", () => {
  const expected: Partial<Record<Reason, number>> = {
    exit: 7,
    wall_limit: 124,
    cpu_limit: 124,
    oom: 137,
    setup_failed: 125,
    no_interpreter: 125,
    user: 130,
  };
  test.each([...REASONS])("of %s", (reason) => {
    const exitCode = reason === "exit" ? 7 : null;
    expect(exitCodeOfRun({ reason, exitCode, signal: null })).toBe(expected[reason] ?? 1);
  });

  test("of a program that a signal ended is 128 + n", () => {
    expect(exitCodeOfRun({ reason: "signal", exitCode: null, signal: "SIGSEGV" })).toBe(139);
    expect(exitCodeOfRun({ reason: "seccomp_violation", exitCode: null, signal: "SIGSYS" })).toBe(
      159,
    );
  });

  test("of a program that exits 0 or 137 itself is its own", () => {
    expect(exitCodeOfRun({ reason: "exit", exitCode: 0, signal: null })).toBe(0);
    expect(exitCodeOfRun({ reason: "exit", exitCode: 137, signal: null })).toBe(137);
  });
});

test.each([
  ["SIGTERM", 143],
  ["SIGKILL", 137],
  ["SIG34", 162],
])("exitCodeOfSignal(%s) is %d", (name, code) => {
  expect(exitCodeOfSignal(name)).toBe(code);
});

test.each([
  [new CprgError("invalid_argument", ""), EXIT.usage],
  [new CprgError("failed_precondition", ""), EXIT.usage],
  [new CprgError("unauthenticated", ""), EXIT.refused],
  [new CprgError("permission_denied", ""), EXIT.refused],
  [new CprgError("unavailable", "", { reason: UNREACHABLE }), EXIT.unreachable],
  [new CprgError("unavailable", "", { reason: "QUEUE_FULL" }), EXIT.failed],
  [new CprgError("not_found", ""), EXIT.failed],
  [new CprgError("internal", ""), EXIT.failed],
])("exitCodeOfError() of %o", (error, code) => {
  expect(exitCodeOfError(error)).toBe(code);
});
