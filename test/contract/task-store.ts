// What every TaskStore must do. Run by task-store.test.ts against each store.

import { describe, expect, test } from "bun:test";
import { CLAIM_ATTEMPTS_MAX, type Task, type TaskChange } from "../../src/core/task.ts";
import { verifyExport } from "../../src/core/verify.ts";
import { exportLog } from "../../src/record/export.ts";
import type { Store } from "../../src/store/contract.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import {
  TASK_ENV_BYTES_MAX,
  TASK_INPUT_BYTES_MAX,
  TASK_RESULT_BYTES_MAX,
} from "../../src/store/task-rules.ts";
import { allLines, failure, NOON, sampleTask, stdout } from "../store/samples.ts";
import { REOPENING_TIMEOUT_MS, type StoreKind } from "./store-harness.ts";

const ENV = new Uint8Array([1, 2, 3]);

/** Registers the suite for one kind of store. */
export function taskStoreContract(kind: StoreKind): void {
  describe(`TaskStore of ${kind.name}`, () => {
    describeLife(kind);
    describeRefusals(kind);
    describeReading(kind);
  });
}

async function inserted(store: Store, change: Partial<Task> = {}): Promise<Task> {
  const task = sampleTask(change);
  await store.tasks.insert(task, ENV);
  return task;
}

function claim(at: number, workerId = "w1"): TaskChange {
  return { type: "claim", at, workerId };
}

async function kindsOf(store: Store, id: string): Promise<unknown[]> {
  const lines = await allLines(store.events, `task:${id}`);
  return lines.map(({ line }) => {
    const { kind, data } = JSON.parse(line);
    return kind === "task" ? [data.status, data.epoch, data.worker_id] : [kind, data.reason];
  });
}

function describeLife({ open }: StoreKind): void {
  test("a task that succeeds: each change with its event, the environment until it runs", async () => {
    await using store = await open();
    const task = await inserted(store);
    expect(await store.tasks.get(task.id)).toEqual(task);
    expect(await store.tasks.sealedEnv(task.id)).toEqual(ENV);
    const claimed = await store.tasks.change(task.id, claim(NOON + 1));
    expect(claimed).toEqual({ ...task, status: "claiming", workerId: "w1", attempts: 1, epoch: 1 });
    expect(await store.tasks.sealedEnv(task.id)).toEqual(ENV);
    const ran = await store.tasks.change(task.id, { type: "run", at: NOON + 2, epoch: 1 });
    expect(ran).toEqual({ ...claimed, status: "running", startedAt: NOON + 2 });
    expect(await store.tasks.sealedEnv(task.id)).toBeNull();
    const end = {
      status: "succeeded",
      reason: "exit",
      result: { files: ["é", null, 1.5] },
    } as const;
    const finish = { type: "finish", at: NOON + 9, epoch: 1, end } as const;
    const ended = await store.tasks.change(task.id, finish);
    expect(ended).toEqual({
      ...ran,
      status: "succeeded",
      reason: "exit",
      result: end.result,
      finishedAt: NOON + 9,
    });
    expect(await store.tasks.get(task.id)).toEqual(ended);
    expect(await kindsOf(store, task.id)).toEqual([
      ["queued", 0, null],
      ["claiming", 1, "w1"],
      ["running", 1, "w1"],
      ["finished", "exit"],
    ]);
    const key = ephemeralSigningKey();
    const log = exportLog({ store, key, subject: `task:${task.id}` });
    expect(await verifyExport(log, { publicKey: key.publicKey })).toMatchObject({ ok: true });
  });

  test("claims that fail go back to the queue with a higher epoch each, then the task fails", async () => {
    await using store = await open();
    const { id } = await inserted(store);
    for (let epoch = 1; epoch <= CLAIM_ATTEMPTS_MAX; epoch += 1) {
      await store.tasks.change(id, claim(NOON + epoch, `w${epoch}`));
      const failed = { type: "unclaim", at: NOON + epoch, epoch, reason: "claim_failed" } as const;
      const task = await store.tasks.change(id, { ...failed, error: `no ${epoch}` });
      const isLast = epoch === CLAIM_ATTEMPTS_MAX;
      expect(task).toMatchObject({ status: isLast ? "failed" : "queued", reason: "claim_failed" });
      expect(task).toMatchObject({ error: `no ${epoch}`, attempts: epoch, epoch });
      expect(task.workerId).toBe(isLast ? `w${epoch}` : null);
      expect(await store.tasks.sealedEnv(id)).toEqual(isLast ? null : ENV);
    }
    expect((await kindsOf(store, id)).at(-1)).toEqual(["finished", "claim_failed"]);
  });

  test("a task is cancelled whatever its claim is, and loses its environment", async () => {
    await using store = await open();
    const cancel = { type: "finish", at: NOON + 5, epoch: null } as const;
    const end = { status: "cancelled", reason: "user" } as const;
    const waits = await inserted(store);
    const claiming = await inserted(store);
    await store.tasks.change(claiming.id, claim(NOON + 1));
    for (const { id } of [waits, claiming]) {
      const ended = await store.tasks.change(id, { ...cancel, end });
      expect(ended).toMatchObject({ status: "cancelled", reason: "user", finishedAt: NOON + 5 });
      expect(await store.tasks.sealedEnv(id)).toBeNull();
    }
  });
}

function describeRefusals({ open, isReopening }: StoreKind): void {
  test("an older claim, a task that has ended and one that is not there change nothing", async () => {
    await using store = await open();
    const { id } = await inserted(store);
    await store.tasks.change(id, claim(NOON));
    const unclaim = { type: "unclaim", at: NOON, epoch: 1, reason: "claim_failed" } as const;
    await store.tasks.change(id, { ...unclaim, error: "" });
    const second = await store.tasks.change(id, claim(NOON, "w2"));
    const end = { status: "failed", reason: "runner_error", error: "x" } as const;
    for (const change of [
      { type: "run", at: NOON, epoch: 1 },
      { ...unclaim, error: "" },
      { type: "finish", at: NOON, epoch: 1, end },
    ] as const) {
      const refused = await failure(store.tasks.change(id, change));
      expect([refused.code, refused.reason]).toEqual(["aborted", "STALE_EPOCH"]);
    }
    expect((await failure(store.tasks.change(id, claim(NOON)))).reason).toBe("TASK_STATUS");
    expect(await store.tasks.get(id)).toEqual(second);
    await store.tasks.change(id, { type: "finish", at: NOON, epoch: 2, end });
    const again = store.tasks.change(id, { type: "finish", at: NOON, epoch: 2, end });
    expect((await failure(again)).code).toBe("failed_precondition");
    expect((await failure(store.tasks.change("nothing", claim(NOON)))).code).toBe("not_found");
    expect((await kindsOf(store, id)).length).toBe(5);
  });

  test(
    "of many claims at once one is made",
    async () => {
      await using store = await open();
      const { id } = await inserted(store);
      const tries = Array.from({ length: isReopening ? 10 : 100 }, (_, index) =>
        store.tasks.change(id, claim(NOON, `w${index}`)).then(
          () => 1,
          () => 0,
        ),
      );
      const made = await Promise.all(tries);
      expect(made.reduce<number>((sum, one) => sum + one, 0)).toBe(1);
      expect(await store.tasks.get(id)).toMatchObject({ attempts: 1, epoch: 1 });
    },
    REOPENING_TIMEOUT_MS,
  );

  test("an id is taken once, and what is too large is refused", async () => {
    await using store = await open();
    const task = await inserted(store);
    expect((await failure(store.tasks.insert(task, null))).code).toBe("already_exists");
    const running = sampleTask({ status: "running" });
    expect((await failure(store.tasks.insert(running, null))).code).toBe("failed_precondition");
    const large = sampleTask({ input: "x".repeat(TASK_INPUT_BYTES_MAX) });
    expect((await failure(store.tasks.insert(large, null))).field).toBe("input");
    const env = new Uint8Array(TASK_ENV_BYTES_MAX + 1);
    expect((await failure(store.tasks.insert(sampleTask(), env))).field).toBe("env");
    const result = "x".repeat(TASK_RESULT_BYTES_MAX);
    const end = { status: "succeeded", reason: "exit", result } as const;
    const ended = store.tasks.change(task.id, { type: "finish", at: NOON, epoch: null, end });
    expect((await failure(ended)).field).toBe("result");
    expect(await store.tasks.get(task.id)).toEqual(task);
  });

  test("nobody else ends the log of a task", async () => {
    await using store = await open();
    const { id } = await inserted(store);
    await store.events.append(`task:${id}`, [stdout("x")]);
    const data = { status: "failed", reason: "exit" } as never;
    const draft = { at: NOON, draft: { kind: "finished", data } } as const;
    const refused = await failure(store.events.append(`task:${id}`, [draft]));
    expect(refused.reason).toBe("FINISH_REQUIRED");
  });
}

function describeReading({ open }: StoreKind): void {
  test("list() has a tenant's own, newest first, by status, in pages", async () => {
    await using store = await open();
    const old = await inserted(store, { createdAt: NOON });
    const young = await inserted(store, { createdAt: NOON + 1 });
    await inserted(store, { tenant: "other" });
    const claimed = await store.tasks.change(old.id, claim(NOON));
    const first = await store.tasks.list({ tenant: "acme", limit: 1 });
    expect(first.tasks).toEqual([young]);
    const cursor = first.nextCursor ?? "";
    const second = await store.tasks.list({ tenant: "acme", limit: 1, cursor });
    expect(second).toEqual({ tasks: [claimed], nextCursor: null });
    const waiting = await store.tasks.list({ tenant: "acme", limit: 9, status: "queued" });
    expect(waiting).toEqual({ tasks: [young], nextCursor: null });
    const bad = store.tasks.list({ tenant: "acme", limit: 1, cursor: "x" });
    expect((await failure(bad)).code).toBe("invalid_argument");
  });

  test("unfinished() goes through all tenants' tasks of a status, oldest first", async () => {
    await using store = await open();
    const tasks: Task[] = [];
    for (const [index, tenant] of ["a", "b", "a"].entries()) {
      tasks.push(await inserted(store, { tenant, createdAt: NOON + index }));
    }
    const [first, second, third] = tasks;
    const query = { status: "queued", limit: 2 } as const;
    expect(await store.tasks.unfinished(query)).toEqual([first, second] as Task[]);
    const rest = await store.tasks.unfinished({ ...query, after: second as Task });
    expect(rest).toEqual([third as Task]);
    await store.tasks.change(second?.id ?? "", claim(NOON));
    expect((await store.tasks.unfinished(query)).map(({ id }) => id)).toEqual(
      [first, third].map((task) => task?.id ?? ""),
    );
    const claiming = await store.tasks.unfinished({ status: "claiming", limit: 5 });
    expect(claiming.map(({ id }) => id)).toEqual([second?.id ?? ""]);
  });

  test("storedBytes() counts input, result and log; prune() takes what ended, and gives them back", async () => {
    await using store = await open();
    const task = await inserted(store);
    await inserted(store, { tenant: "other" });
    const end = { status: "succeeded", reason: "exit", result: "é" } as const;
    await store.tasks.change(task.id, { type: "finish", at: NOON + 1, epoch: null, end });
    const lines = await allLines(store.events, `task:${task.id}`);
    const json = [task.input, "é"].map((value) => JSON.stringify(value));
    const bytes = [...lines.map(({ line }) => line), ...json].map((text) =>
      Buffer.byteLength(text),
    );
    expect(await store.storedBytes("acme")).toBe(bytes.reduce((sum, more) => sum + more));
    let runs = 0;
    for (let isDone = false; !isDone; ) {
      const step = await store.prune(NOON + 2);
      runs += step.runs;
      isDone = step.isDone;
    }
    expect(runs).toBe(1);
    expect(await store.tasks.get(task.id)).toBeNull();
    expect(await store.events.head(`task:${task.id}`)).toBeNull();
    expect(await store.storedBytes("acme")).toBe(0);
  });
}
