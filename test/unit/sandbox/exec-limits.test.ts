import { describe, expect, test } from "bun:test";
import { DEFAULT_LIMITS, SECONDS_MAX } from "../../../src/core/limits.ts";
import { execLimits, execRlimits } from "../../../src/sandbox/exec-limits.ts";
import { BOUNDS, RLIMIT } from "../../../src/sandbox/layout.ts";

describe("execLimits()", () => {
  test("takes the caller's bounds over the sandbox's", () => {
    expect(execLimits(DEFAULT_LIMITS, undefined)).toEqual(DEFAULT_LIMITS);
    expect(execLimits(DEFAULT_LIMITS, { wall_seconds: SECONDS_MAX, cpu_seconds: 0.5 })).toEqual({
      ...DEFAULT_LIMITS,
      wall_seconds: SECONDS_MAX,
      cpu_seconds: 0.5,
    });
  });

  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0, -1]) {
    test(`refuses ${value}`, () => {
      for (const name of ["wall_seconds", "cpu_seconds", "output_kb"] as const) {
        expect(() => execLimits(DEFAULT_LIMITS, { [name]: value })).toThrow(`limits.${name}`);
      }
    });
  }

  test("refuses a time that no timer and no field of the kernel holds", () => {
    for (const name of ["wall_seconds", "cpu_seconds"] as const) {
      expect(() => execLimits(DEFAULT_LIMITS, { [name]: 3e6 })).toThrow(String(SECONDS_MAX));
    }
  });
});

describe("execRlimits()", () => {
  const of = (resource: number) =>
    execRlimits(DEFAULT_LIMITS, { hasMemoryLimit: true }).find(
      (rlimit) => rlimit.resource === resource,
    );

  test("asks for no core dump that a pipe would get, and for few things of the host's", () => {
    expect(of(RLIMIT.core)).toMatchObject({ soft: 1, hard: 1 });
    expect(of(RLIMIT.msgqueue)).toMatchObject({ soft: 0, hard: 0 });
    expect(of(RLIMIT.sigpending)).toMatchObject({ soft: 128, hard: 128 });
  });

  test("fits into a request", () => {
    expect(execRlimits(DEFAULT_LIMITS, { hasMemoryLimit: false }).length).toBeLessThanOrEqual(
      BOUNDS.rlimits,
    );
  });
});
