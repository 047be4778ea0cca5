import { expect, test } from "bun:test";
import {
  assert,
  CprgError,
  type ErrorCode,
  HTTP_STATUS,
  invalid,
} from "../../../src/core/errors.ts";

test("CprgError carries what it was given, and its name", () => {
  const cause = new Error("below");
  const error = new CprgError("resource_exhausted", "Cannot queue job", {
    op: "submit job",
    reason: "QUEUE_FULL",
    field: "limits",
    hint: "Try later",
    retryAfterSeconds: 3,
    setup: { step: "mount", index: 1, errno: 2, errnoName: "ENOENT" },
    cause,
  });
  expect(error).toMatchObject({
    name: "CprgError",
    code: "resource_exhausted",
    message: "Cannot queue job",
    op: "submit job",
    reason: "QUEUE_FULL",
    field: "limits",
    hint: "Try later",
    retryAfterSeconds: 3,
    setup: { step: "mount" },
  });
  expect(error.cause).toBe(cause);
  expect(String(error)).toBe("CprgError: Cannot queue job");
  expect("cause" in new CprgError("internal", "x")).toBe(false);
});

test("retryable follows the code unless it is said", () => {
  const codes = Object.keys(HTTP_STATUS) as ErrorCode[];
  const retryable = codes.filter((code) => new CprgError(code, "x").retryable);
  expect(retryable).toEqual(["aborted", "unavailable"]);
  expect(new CprgError("unavailable", "x", { retryable: false }).retryable).toBe(false);
  expect(new CprgError("internal", "x", { retryable: true }).retryable).toBe(true);
});

test("HTTP_STATUS has a status of failure for each of the 16 codes", () => {
  expect(Object.keys(HTTP_STATUS)).toHaveLength(16);
  expect(Object.values(HTTP_STATUS).every((status) => status >= 400 && status < 600)).toBe(true);
});

test("CprgError.is() knows one of another copy of the module, and nothing else", () => {
  expect(CprgError.is(new CprgError("internal", "x"))).toBe(true);
  expect(CprgError.is({ [Symbol.for("cprg.error")]: true })).toBe(true);
  const others = [null, undefined, "x", 1, {}, new Error("x"), { code: "internal", message: "x" }];
  expect(others.filter((value) => CprgError.is(value))).toEqual([]);
});

test("CprgError.from() keeps ours and makes the rest internal", () => {
  const ours = new CprgError("not_found", "x");
  expect(CprgError.from(ours, "other op")).toBe(ours);
  const cause = new TypeError("broken");
  const wrapped = CprgError.from(cause, "read file");
  expect(wrapped).toMatchObject({ code: "internal", message: "broken", op: "read file" });
  expect(wrapped.cause).toBe(cause);
  for (const [thrown, message] of [
    ["text", "text"],
    [null, "null"],
    [undefined, "undefined"],
  ]) {
    expect(CprgError.from(thrown)).toMatchObject({ code: "internal", message: message ?? "" });
  }
});

test("invalid() names the field", () => {
  expect(invalid("limits.pids", "Cannot use it", "Say less")).toMatchObject({
    code: "invalid_argument",
    field: "limits.pids",
    hint: "Say less",
  });
});

test("assert() throws a bug, which is no operational error", () => {
  assert(true, "fine");
  expect(() => assert(false, "the sky fell")).toThrow("BUG(cprg): the sky fell");
  try {
    assert(0, "zero");
  } catch (error) {
    expect(CprgError.is(error)).toBe(false);
  }
});
