import { expect, test } from "bun:test";
import { newId } from "../../../src/core/ids.ts";
import type { Job } from "../../../src/core/job.ts";
import { pruneArtifacts } from "../../../src/jobs/keep-artifacts.ts";
import { memoryArtifacts } from "../../../src/store/memory-artifacts.ts";

test("pruneArtifacts() forgets the files of jobs that are gone, however many", async () => {
  const artifacts = memoryArtifacts();
  const ids = Array.from({ length: 600 }, () => newId());
  for (const id of ids) await artifacts.keepNone({ id, tenant: "a" }, "x");
  const kept = new Set(ids.filter((_, index) => index % 3 === 0));
  const get = async (id: string) => (kept.has(id) ? ({ id } as Job) : null);
  expect(await pruneArtifacts(artifacts, { get })).toBe(400);
  expect(artifacts.jobs()).toEqual([...kept]);
  expect(await pruneArtifacts(artifacts, { get })).toBe(0);
});
