// When a worker dials again, and when it stops and with which code.

import { expect, test } from "bun:test";
import { CprgError, type ErrorCode } from "../../../src/core/errors.ts";
import { PAUSE_MS_MOST, Reconnect } from "../../../src/worker/reconnect.ts";

function after(code: ErrorCode | null, reason?: string): number | "dial" {
  const error =
    code === null
      ? undefined
      : new CprgError(code, "ended", reason === undefined ? {} : { reason });
  const next = new Reconnect().next({ error, openMs: 0 });
  return next.type === "stop" ? next.exitCode : "dial";
}

test("the statuses of sections 2 and 10 stop it", () => {
  for (const reason of ["NO_TOKEN", "BAD_TOKEN", "TOKEN_EXPIRED", "TOKEN_REVOKED"]) {
    expect(after("unauthenticated", reason)).toBe(3);
  }
  for (const reason of ["ID_TAKEN", "ID_NOT_ALLOWED", "WORKER_REMOVED"]) {
    expect(after("permission_denied", reason)).toBe(3);
  }
  expect(after("aborted", "REPLACED")).toBe(3);
  expect(after("invalid_argument", "BAD_METADATA")).toBe(2);
});

test("no other status does, nor a code of theirs without a reason of its row", () => {
  expect(after("unauthenticated")).toBe("dial");
  expect(after("unauthenticated", "ID_TAKEN")).toBe("dial");
  expect(after("permission_denied")).toBe("dial");
  expect(after("permission_denied", "PROXY")).toBe("dial");
  expect(after("invalid_argument")).toBe("dial");
  expect(after("invalid_argument", "PROTOCOL_ERROR")).toBe("dial");
  expect(after("resource_exhausted", "TOO_MANY_WORKERS")).toBe("dial");
  expect(after("unavailable", "SHUTDOWN")).toBe("dial");
  expect(after("deadline_exceeded", "SILENT")).toBe("dial");
  expect(after("aborted")).toBe("dial");
  expect(after("internal")).toBe("dial");
  expect(after(null)).toBe("dial");
});

test("pauses double from 1 s to 60 s, each cut to a random part, and begin anew when it settled", () => {
  const pauses = (random: number, openMs: (number | null)[]): number[] => {
    const reconnect = new Reconnect({ random: () => random });
    return openMs.map((each) => {
      const next = reconnect.next({ error: undefined, openMs: each });
      return next.type === "dial" ? next.pauseMs : -1;
    });
  };
  const short = Array.from({ length: 8 }, () => 0);
  expect(pauses(1, short)).toEqual([1, 2, 4, 8, 16, 32, 60, 60].map((s) => s * 1000));
  expect(pauses(0, short)).toEqual([0.5, 1, 2, 4, 8, 16, 30, 30].map((s) => s * 1000));
  expect(pauses(1, [null, 0, null, 60_000, 0])).toEqual([1000, 2000, 4000, 1000, 2000]);
  expect(PAUSE_MS_MOST).toBe(60_000);
});

test("a bound on attempts counts dials in a row that opened nothing", () => {
  const exits = (openMs: (number | null)[]): (number | "dial")[] => {
    const reconnect = new Reconnect({ attemptsMax: 2 });
    return openMs.map((each) => {
      const error = new CprgError("unavailable", "lost");
      const next = reconnect.next({ error, openMs: each });
      return next.type === "stop" ? next.exitCode : "dial";
    });
  };
  expect(exits([null, null])).toEqual(["dial", 4]);
  expect(exits([null, 10, null, null])).toEqual(["dial", "dial", "dial", 1]);
});
