// Events of a job as a worker sends them: what is taken, and what is refused.

import { expect, test } from "bun:test";
import { Handlers } from "../../../src/bridge/handlers.ts";
import { JOB_RUN } from "../../../src/bridge/methods.ts";
import { openMux } from "../../../src/bridge/mux.ts";
import { ClaimLink } from "../../../src/control-plane/claim-link.ts";
import { runRemoteJob } from "../../../src/control-plane/remote-job.ts";
import { CprgError } from "../../../src/core/errors.ts";
import type { JobItem } from "../../../src/gen/messages.ts";
import { jobSpec } from "../../../src/jobs/spec.ts";
import { framePair } from "../../bridge/frame-pair.ts";

const FINISHED = {
  status: "succeeded",
  exit_code: 0,
  signal: null,
  reason: "exit",
  duration_ms: 1,
  killed: 0,
  usage: null,
};

const item = (seq: number, kind: string, rest: Partial<JobItem> = {}): JobItem => ({
  seq,
  atMs: 1,
  kind,
  output: new Uint8Array(),
  data: "",
  ...rest,
});
const finished = (seq: number, change: object = {}): JobItem =>
  item(seq, "finished", { data: JSON.stringify({ ...FINISHED, ...change }) });

/** What the caller makes of the items of a worker. */
async function taken(items: readonly JobItem[]): Promise<unknown> {
  const [end, workerEnd] = framePair();
  const handlers = new Handlers().serverStream(JOB_RUN, async function* () {
    yield* items;
  });
  const plane = openMux(end, { handlers: new Handlers(), own: [], peer: new Set() });
  openMux(workerEnd, { handlers, own: [], peer: new Set() });
  const claim = { taskId: "t", epoch: 1 };
  const link = new ClaimLink({ claim, ttlSeconds: 0, mux: plane, onOver: () => undefined });
  const given = { limits: {}, layers: {}, missing: [] };
  link.grant({ root: "/r", home: "/h", os: "linux", arch: "x86_64", ...given });
  try {
    const drafts: unknown[] = [];
    for await (const { draft } of runRemoteJob(link, jobSpec({ argv: ["true"] }))) {
      drafts.push("bytes" in draft ? Buffer.from(draft.bytes).toString() : draft);
    }
    return drafts;
  } catch (error) {
    if (!CprgError.is(error)) throw error;
    return `${error.code} ${error.reason}`;
  } finally {
    plane.close();
  }
}

test("output and data are taken as they are, fields that nobody knows are dropped", async () => {
  const usage = { cpu_ms: 1, memory_bytes: null, pids: 2 };
  const drafts = await taken([
    item(1, "stdout", { output: Buffer.from("a") }),
    item(2, "usage", { data: JSON.stringify({ ...usage, more: "x" }) }),
    finished(3),
  ]);
  expect(drafts).toEqual([
    "a",
    { kind: "usage", data: usage },
    { kind: "finished", data: FINISHED },
  ] as never);
});

const hostile: Readonly<Record<string, readonly JobItem[]>> = {
  "a gap": [item(1, "stdout", { output: Buffer.from("a") }), finished(3)],
  "no end": [item(1, "stdout", { output: Buffer.from("a") })],
  "nothing at all": [],
  "more after the end": [finished(1), finished(2)],
  "empty output": [item(1, "stderr"), finished(2)],
  "too much output": [item(1, "stdout", { output: new Uint8Array(65_537) }), finished(2)],
  "a kind that nobody knows": [item(1, "audit", { data: "{}" })],
  "a kind of the prototype": [item(1, "__proto__", { data: "{}" })],
  "data that are no JSON": [item(1, "usage", { data: "{" })],
  "data that are too long": [item(1, "usage", { data: `"${"x".repeat(70_000)}"` })],
  "data of another kind": [item(1, "limit", { data: JSON.stringify(FINISHED) })],
  "a status that is not its reason's": [finished(1, { status: "succeeded", exit_code: 1 })],
  "a reason that nobody knows": [finished(1, { reason: "magic" })],
};

for (const [what, items] of Object.entries(hostile)) {
  test(`refused: ${what}`, async () => {
    expect(await taken(items)).toBe("data_loss BAD_EVENT");
  });
}
