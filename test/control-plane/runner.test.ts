// What a runner may do, and for how long.

import { expect, test } from "bun:test";
import {
  RUNNER_NOTE_BYTES_MAX,
  RUNNER_NOTES_MAX,
  RUNNER_STOP_MS_MAX,
} from "../../src/control-plane/run-driver.ts";
import { CprgError } from "../../src/core/errors.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { Ground, gate } from "./ground.ts";

async function notesOf({ plane }: Ground, id: string): Promise<string[]> {
  const notes: string[] = [];
  for await (const { line } of plane.events(id)) {
    const { kind, data } = JSON.parse(line);
    if (kind === "stdout") notes.push(data);
  }
  return notes;
}

test("notes are bounded in length and number, and none comes after the end", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  let late: Promise<void> | null = null;
  const ended = gate();
  plane.setRunner(async (input, { note }) => {
    late = ended.opened.then(() => note("too late"));
    if (input === "long") return await note("é".repeat(RUNNER_NOTE_BYTES_MAX));
    for (let at = 0; at < RUNNER_NOTES_MAX + 5; at += 1) await note(`${at}`);
    return null;
  });
  await ground.worker({ isIdle: true });
  const long = await plane.submit("long");
  await plane.waitTask(long.id);
  expect((await notesOf(ground, long.id)).map((text) => Buffer.byteLength(text))).toEqual([
    RUNNER_NOTE_BYTES_MAX,
  ]);
  const many = await plane.submit("many");
  await plane.waitTask(many.id);
  ended.open();
  await late;
  const notes = await notesOf(ground, many.id);
  expect(notes.length).toBe(RUNNER_NOTES_MAX + 1);
  expect(notes.slice(-2)).toEqual([`${RUNNER_NOTES_MAX - 1}`, "Further notes are left out.\n"]);
});

test("a runner that goes on after a cancel is left behind, and reaches nothing any more", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const { opened, open } = gate();
  const reached = Promise.withResolvers<unknown>();
  plane.setRunner(async (input, { lease }) => {
    if (input === "next") return "next";
    await opened;
    reached.resolve(await lease.invoke({ executable: "true" }).catch((error) => error.code));
    return "stubborn";
  });
  await ground.worker({ isIdle: true });
  const { id } = await plane.submit("stubborn");
  await ground.has(id, "running");
  const atMs = performance.now();
  expect(await plane.cancelTask(id)).toMatchObject({ status: "cancelled", result: null });
  const tookMs = performance.now() - atMs;
  expect(tookMs).toBeGreaterThan(RUNNER_STOP_MS_MAX - 100);
  const next = await plane.submit("next");
  expect(await plane.waitTask(next.id)).toMatchObject({ result: "next" });
  open();
  expect(await reached.promise).toBe("failed_precondition");
  expect(await plane.task(id)).toMatchObject({ status: "cancelled", result: null });
});

test("the reason of an error is the task's where it is one of the closed set", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const errors: Record<string, unknown> = {
    oom: new CprgError("resource_exhausted", "too large", { reason: "oom" }),
    upper: new CprgError("unavailable", "gone", { reason: "DISK_FULL" }),
    other: new CprgError("internal", "odd", { reason: "SOMETHING" }),
    text: "a text",
    empty: new Error(""),
    long: new Error("x".repeat(100_000)),
  };
  plane.setRunner(async (input) => {
    throw errors[String(input)];
  });
  await ground.worker({ isIdle: true });
  const ends: unknown[] = [];
  for (const name of Object.keys(errors)) {
    const { id } = await plane.submit(name);
    const { reason, error } = await plane.waitTask(id);
    ends.push([name, reason, error?.slice(0, 20)]);
    expect(error?.length).toBeLessThan(5000);
  }
  expect(ends).toEqual([
    ["oom", "oom", "too large"],
    ["upper", "disk_full", "gone"],
    ["other", "runner_error", "odd"],
    ["text", "runner_error", "a text"],
    ["empty", "runner_error", "the runner failed"],
    ["long", "runner_error", "x".repeat(20)],
  ]);
});

test("what the store does not take at first is tried again: a claim, and an end", async () => {
  const store = memoryStore();
  const failing = new Set(["claim", "run", "finish"]);
  const full = () =>
    new CprgError("resource_exhausted", "the disk is full", { reason: "DISK_FULL" });
  const { change } = store.tasks;
  const tasks = {
    ...store.tasks,
    change: async (...[id, what]: Parameters<typeof change>) => {
      if (failing.delete(what.type)) throw full();
      return await change(id, what);
    },
  };
  await using ground = await Ground.open({ store: { ...store, tasks }, finishRetryMs: [1] });
  const { plane } = ground;
  let runs = 0;
  plane.setRunner(async () => ++runs);
  await ground.worker({ isIdle: true });
  const { id } = await plane.submit(1);
  expect(await plane.waitTask(id)).toMatchObject({ status: "succeeded", attempts: 1, result: 1 });
  expect([...failing]).toEqual([]);
  expect(runs).toBe(1);
});

test("of runners that were set under one name the last is used", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner("a", async () => "first").setRunner("a", async () => "second");
  await ground.worker({ isIdle: true });
  const { id } = await plane.submit(null);
  expect(await plane.waitTask(id)).toMatchObject({ result: "second", runner: "a" });
});
