import { describe, expect, test } from "bun:test";
import type { Job } from "../../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { resultHead } from "../../../src/jobs/views.ts";
import { resultStream } from "../../../src/record/result-stream.ts";
import type { TimedDraft } from "../../../src/store/contract.ts";
import { memoryStore } from "../../../src/store/memory-store.ts";
import { randomBytes, randomChunks, randomFrom } from "./random.ts";

const job: Job = {
  id: "01a22e2f-8f7c-75cc-9929-2b69fe971460",
  tenant: "a",
  status: "running",
  language: "python",
  limits: DEFAULT_LIMITS,
  labels: {},
  placement: null,
  workerId: null,
  createdAt: 0,
  startedAt: 1,
  finishedAt: null,
  owner: null,
  outcome: null,
};

async function resultOf(drafts: readonly TimedDraft[]) {
  const { events } = memoryStore();
  if (drafts.length > 0) await events.append(`job:${job.id}`, drafts);
  let text = "";
  const result = { subject: `job:${job.id}` as const, head: resultHead(job) };
  for await (const piece of resultStream(events, result)) text += piece;
  return JSON.parse(text);
}

function rowOf(kind: "stdout" | "stderr", bytes: Uint8Array): TimedDraft {
  return { at: 1, draft: { kind, bytes: Uint8Array.from(bytes) } };
}

/** The exact bytes are there: as text, or in base64 where text cannot hold them. */
function expectFolded(bytes: Buffer, text: string, base64: string | undefined): void {
  expect(text).toBe(bytes.toString("utf8"));
  const given = base64 === undefined ? Buffer.from(text, "utf8") : Buffer.from(base64, "base64");
  expect(given.toString("hex")).toBe(bytes.toString("hex"));
}

describe("resultStream()", () => {
  test("is empty for a job without a log", async () => {
    expect(await resultOf([])).toEqual({
      job_id: job.id,
      status: "running",
      exit_code: null,
      signal: null,
      reason: null,
      duration_ms: null,
      usage: null,
      stdout: "",
      stderr: "",
      truncated: false,
      violations: [],
      limits_hit: [],
    });
  });

  test.each(Array.from({ length: 60 }, (_, seed) => [seed]))(
    "folds rows of any cut into what one decoder would give (seed %d)",
    async (seed) => {
      const random = randomFrom(seed);
      const bytes = {
        stdout: Buffer.from(randomBytes(random, random(500))),
        stderr: Buffer.from(randomBytes(random, random(500))),
      };
      const rows = (kind: "stdout" | "stderr") =>
        [...randomChunks(random, bytes[kind], 40)].map((chunk) => rowOf(kind, chunk));
      const result = await resultOf([...rows("stdout"), ...rows("stderr")]);
      expectFolded(bytes.stdout, result.stdout, result.stdout_base64);
      expectFolded(bytes.stderr, result.stderr, result.stderr_base64);
    },
  );
});
