import { expect, test } from "bun:test";
import { DEFAULT_LIMITS, type Limits } from "../../../src/core/limits.ts";
import { Admission } from "../../../src/sandbox/admission.ts";

const limits = (mem_mb: number, pids = 10): Limits => ({ ...DEFAULT_LIMITS, mem_mb, pids });
const isPending = async (promise: Promise<unknown>): Promise<boolean> =>
  (await Promise.race([promise.then(() => "done"), Promise.resolve("pending")])) === "pending";

test("reserve() grants what fits at once, and the rest in order as places become free", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  const first = await admission.reserve(limits(60), undefined);
  const second = admission.reserve(limits(60), undefined);
  const third = admission.reserve(limits(30), undefined);
  expect(admission.state).toEqual({ memMb: 60, pids: 10, waiting: 2 });
  // The third would fit, but the second was first.
  expect(await isPending(third)).toBe(true);
  first.cancel();
  first.cancel();
  await Promise.all([second, third]);
  expect(admission.state).toEqual({ memMb: 90, pids: 20, waiting: 0 });
});

test("reserve() counts processes as well", async () => {
  const admission = new Admission({ memMb: 1000, pids: 15 });
  const first = await admission.reserve(limits(1), undefined);
  const second = admission.reserve(limits(1), undefined);
  expect(await isPending(second)).toBe(true);
  first.cancel();
  await second;
});

test("reserve() refuses what can never fit, naming limit and capacity", async () => {
  const admission = new Admission({ memMb: 100, pids: 15 });
  const refusal = (wanted: Limits) =>
    admission.reserve(wanted, undefined).catch((error: unknown) => error);
  expect(await refusal(limits(101))).toMatchObject({
    code: "failed_precondition",
    field: "limits.mem_mb",
    message: expect.stringMatching(/mem_mb 101: .* 100$/),
  });
  expect(await refusal(limits(1, 16))).toMatchObject({ field: "limits.pids" });
});

test("an aborted wait leaves the queue, and lets those behind it pass", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  await admission.reserve(limits(60), undefined);
  const controller = new AbortController();
  const large = admission.reserve(limits(90), controller.signal).catch((error: unknown) => error);
  const small = admission.reserve(limits(40), undefined);
  expect(await isPending(small)).toBe(true);
  controller.abort();
  expect(await large).toMatchObject({ code: "canceled" });
  await small;
  expect(admission.state).toEqual({ memMb: 100, pids: 20, waiting: 0 });
  expect(
    await admission.reserve(limits(1), AbortSignal.abort()).catch((error: unknown) => error),
  ).toMatchObject({ code: "canceled" });
});

test("occupy() takes each place once, and only ours", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  const place = await admission.reserve(limits(10), undefined);
  const free = admission.occupy(place);
  expect(() => admission.occupy(place)).toThrow(/used up/);
  // An open sandbox keeps its place whatever the reservation says.
  place.cancel();
  expect(admission.state.memMb).toBe(10);
  free();
  free();
  expect(admission.state.memMb).toBe(0);
  expect(() => admission.occupy(place)).toThrow(/used up/);
  expect(() => admission.occupy({ limits: limits(1), cancel: () => undefined })).toThrow();
  const cancelled = await admission.reserve(limits(10), undefined);
  cancelled.cancel();
  expect(() => admission.occupy(cancelled)).toThrow(/used up/);
});
