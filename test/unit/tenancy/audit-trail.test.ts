import { expect, test } from "bun:test";
import { AUDIT_SUBJECT, type AuditRecord } from "../../../src/core/audit.ts";
import { silentLog } from "../../../src/core/log.ts";
import { eventOf } from "../../../src/core/output-text.ts";
import type { EventLog, TimedDraft } from "../../../src/store/contract.ts";
import { memoryStore } from "../../../src/store/memory-store.ts";
import { AuditTrail, NOBODY } from "../../../src/tenancy/audit-trail.ts";

const record = (object: string): AuditRecord => ({
  ...NOBODY,
  action: "job.submit",
  object,
  outcome: "ok",
});

/** A trail over a store that is held, fails, or works. */
function useTrail(options: { waitingMax?: number } = {}) {
  const store = memoryStore();
  const calls: (readonly TimedDraft[])[] = [];
  const state = { isFailing: false };
  const append: EventLog["append"] = async (subject, drafts) => {
    expect(subject).toBe(AUDIT_SUBJECT);
    if (state.isFailing) throw new Error("disk full");
    calls.push(drafts);
    return await store.events.append(subject, drafts);
  };
  const trail = new AuditTrail({ events: { append }, log: silentLog, ...options });
  const rows = () => calls.flat().map(({ draft }) => eventOf(draft).data as AuditRecord);
  return { trail, calls, rows, state };
}

test("keeps the order, and commits together what comes together", async () => {
  const { trail, calls, rows } = useTrail();
  for (const object of ["1", "2", "3"]) trail.record(record(object));
  await trail.flush();
  trail.record(record("4"));
  await trail.flush();
  expect(rows().map(({ object }) => object)).toEqual(["1", "2", "3", "4"]);
  expect(calls).toHaveLength(2);
});

test("what does not fit is counted and said", async () => {
  const { trail, rows } = useTrail({ waitingMax: 2 });
  for (const object of ["1", "2", "3", "4"]) trail.record(record(object));
  await trail.flush();
  expect(rows().map(({ action, count }) => [action, count])).toEqual([
    ["audit.lost", 2],
    ["job.submit", undefined],
    ["job.submit", undefined],
  ]);
});

test("what the store refuses is counted and said once it works again", async () => {
  const { trail, rows, state } = useTrail();
  state.isFailing = true;
  trail.record(record("1"));
  await trail.flush();
  state.isFailing = false;
  trail.record(record("2"));
  await trail.flush();
  expect(rows().map(({ action, object, count }) => [action, object, count])).toEqual([
    ["audit.lost", null, 1],
    ["job.submit", "2", undefined],
  ]);
});

test("any number of refused requests are one record", async () => {
  const { trail, rows } = useTrail();
  for (let index = 0; index < 10_000; index += 1) trail.refused();
  await trail.flush();
  await trail.flush();
  expect(rows()).toEqual([
    { ...NOBODY, action: "auth.refuse", outcome: "refused", status: 401, count: 10_000 },
  ]);
});
