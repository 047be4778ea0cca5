import { expect, test } from "bun:test";
import { DEFAULT_LIMITS, type Limits } from "../../../src/core/limits.ts";
import { Admission, PASSED_MAX } from "../../../src/sandbox/admission.ts";

const limits = (mem_mb: number, pids = 10): Limits => ({ ...DEFAULT_LIMITS, mem_mb, pids });
const isPending = async (promise: Promise<unknown>): Promise<boolean> =>
  (await Promise.race([promise.then(() => "done"), Promise.resolve("pending")])) === "pending";

test("reserve() grants what fits at once, and the rest in order as places become free", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  const first = await admission.reserve(limits(60));
  const second = admission.reserve(limits(60));
  const third = admission.reserve(limits(30));
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
  const first = await admission.reserve(limits(1));
  const second = admission.reserve(limits(1));
  expect(await isPending(second)).toBe(true);
  first.cancel();
  await second;
});

test("reserve() refuses what can never fit, naming limit and capacity", async () => {
  const admission = new Admission({ memMb: 100, pids: 15 });
  const refusal = (wanted: Limits) => admission.reserve(wanted).catch((error: unknown) => error);
  expect(await refusal(limits(101))).toMatchObject({
    code: "failed_precondition",
    field: "limits.mem_mb",
    message: expect.stringMatching(/mem_mb 101: .* 100$/),
  });
  expect(await refusal(limits(1, 16))).toMatchObject({ field: "limits.pids" });
});

test("an aborted wait leaves the queue, and lets those behind it pass", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  await admission.reserve(limits(60));
  const controller = new AbortController();
  const large = admission
    .reserve(limits(90), { signal: controller.signal })
    .catch((error: unknown) => error);
  const small = admission.reserve(limits(40));
  expect(await isPending(small)).toBe(true);
  controller.abort();
  expect(await large).toMatchObject({ code: "canceled" });
  await small;
  expect(admission.state).toEqual({ memMb: 100, pids: 20, waiting: 0 });
  expect(
    await admission
      .reserve(limits(1), { signal: AbortSignal.abort() })
      .catch((error: unknown) => error),
  ).toMatchObject({ code: "canceled" });
});

test("occupy() takes each place once, and only ours", async () => {
  const admission = new Admission({ memMb: 100, pids: 100 });
  const place = await admission.reserve(limits(10));
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
  const cancelled = await admission.reserve(limits(10));
  cancelled.cancel();
  expect(() => admission.occupy(cancelled)).toThrow(/used up/);
});

test("a tenant that holds much holds up nobody who holds less", async () => {
  const admission = new Admission({ memMb: 100, pids: 1000 });
  await admission.reserve(limits(70), { tenant: "much" });
  const large = admission.reserve(limits(60), { tenant: "much" });
  await admission.reserve(limits(10), { tenant: "little" });
  await admission.reserve(limits(10), { tenant: "less" });
  const more = admission.reserve(limits(5), { tenant: "much" });
  expect(await isPending(more)).toBe(true);
  expect(admission.state.waiting).toBe(2);
  await admission.reserve(limits(10), { tenant: "little" });
  expect(await isPending(large)).toBe(true);
});

test("what becomes free goes to who holds the least, and within a tenant in order", async () => {
  const admission = new Admission({ memMb: 100, pids: 1000 });
  const first = await admission.reserve(limits(50), { tenant: "a" });
  await admission.reserve(limits(50), { tenant: "b" });
  const order: string[] = [];
  const ask = (tenant: string, name: string) =>
    admission.reserve(limits(25), { tenant }).then(() => order.push(name));
  const asked = [ask("b", "b1"), ask("a", "a1"), ask("a", "a2"), ask("c", "c1")];
  first.cancel();
  await Promise.race(asked);
  await Promise.resolve();
  expect(order).toEqual(["a1", "c1"]);
});

test("one that waits is passed so often, then nobody else is served", async () => {
  const admission = new Admission({ memMb: 100, pids: 10_000 });
  await admission.reserve(limits(50), { tenant: "a" });
  const large = admission.reserve(limits(60), { tenant: "b" });
  for (let count = 0; count < PASSED_MAX; count += 1) {
    const place = await admission.reserve(limits(1), { tenant: "c" });
    place.cancel();
  }
  const late = admission.reserve(limits(1), { tenant: "c" });
  expect(await isPending(late)).toBe(true);
  expect(await isPending(large)).toBe(true);
});
