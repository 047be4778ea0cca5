// When a worker dials again, and when it stops and with which code.

import { expect, test } from "bun:test";
import { CprgError, type ErrorCode } from "../../../src/core/errors.ts";
import { PAUSE_MS_MOST, Reconnect } from "../../../src/worker/reconnect.ts";

function after(code: ErrorCode | null, reason?: string, wasOpen = true): number | "dial" {
  const error =
    code === null
      ? undefined
      : new CprgError(code, "ended", reason === undefined ? {} : { reason });
  const next = new Reconnect(() => 1).next({ error, wasOpen, livedMs: 0 });
  return next.type === "stop" ? next.exitCode : "dial";
}

test("the statuses of sections 2 and 10 stop it or do not", () => {
  expect(after("unauthenticated", "BAD_TOKEN", false)).toBe(3);
  expect(after("unauthenticated", "TOKEN_REVOKED")).toBe(3);
  expect(after("permission_denied", "ID_TAKEN", false)).toBe(3);
  expect(after("permission_denied", "WORKER_REMOVED")).toBe(3);
  expect(after("aborted", "REPLACED")).toBe(3);
  expect(after("invalid_argument", "BAD_METADATA", false)).toBe(2);
  expect(after("invalid_argument", "BAD_METADATA")).toBe(2);
  expect(after("invalid_argument", "PROTOCOL_ERROR")).toBe("dial");
  expect(after("resource_exhausted", "TOO_MANY_WORKERS", false)).toBe("dial");
  expect(after("unavailable", "SHUTDOWN", false)).toBe("dial");
  expect(after("deadline_exceeded", "SILENT")).toBe("dial");
  expect(after("aborted")).toBe("dial");
  expect(after("internal")).toBe("dial");
  expect(after(null)).toBe("dial");
});

test("pauses double from 1 s to 60 s, each cut to a random part, and begin anew when it settled", () => {
  const pauses = (random: number, livedMs: number[]): number[] => {
    const reconnect = new Reconnect(() => random);
    return livedMs.map((lived) => {
      const next = reconnect.next({ error: undefined, wasOpen: true, livedMs: lived });
      return next.type === "dial" ? next.pauseMs : -1;
    });
  };
  const short = Array.from({ length: 8 }, () => 0);
  expect(pauses(1, short)).toEqual([1, 2, 4, 8, 16, 32, 60, 60].map((s) => s * 1000));
  expect(pauses(0, short)).toEqual([0.5, 1, 2, 4, 8, 16, 30, 30].map((s) => s * 1000));
  expect(pauses(1, [0, 0, 0, 60_000, 0])).toEqual([1000, 2000, 4000, 1000, 2000]);
  expect(PAUSE_MS_MOST).toBe(60_000);
});
