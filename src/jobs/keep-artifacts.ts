/** Hands the files that a program left to whoever keeps them, before its sandbox goes. */

import { CprgError } from "../core/errors.ts";
import type { Job } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { ExecLease } from "../provider/contract.ts";
import type { ArtifactStore } from "../store/artifacts.ts";
import type { JobStore } from "../store/contract.ts";

/** Characters of a reason that is kept: it can hold a name that a program chose. */
const PROBLEM_CHARS_MAX = 512;
/** Jobs that are looked up together: they share a batch of the store. */
const LOOKED_UP_AT_ONCE = 256;

/**
 * Keeps the artifacts of a job. Never rejects: a job does not fail of it, and a client who looks for
 * its files finds the reason.
 */
export async function keepArtifacts(
  lease: Pick<ExecLease, "artifacts">,
  { job, artifacts, log }: { job: Job; artifacts: ArtifactStore; log: Log },
): Promise<void> {
  try {
    await artifacts.keep(job, await lease.artifacts());
  } catch (error) {
    log.warn("artifacts not kept", { job_id: job.id, error });
    const problem = CprgError.is(error) ? error.message : "The server failed to keep them";
    await artifacts
      .keepNone(job, problem.slice(0, PROBLEM_CHARS_MAX))
      .catch((cause: unknown) => log.error("no word kept", { job_id: job.id, error: cause }));
  }
}

/** Forgets the artifacts of jobs that are gone; returns how many jobs that were. */
export async function pruneArtifacts(
  artifacts: ArtifactStore,
  jobs: Pick<JobStore, "get">,
): Promise<number> {
  const ids = artifacts.jobs();
  let removed = 0;
  for (let start = 0; start < ids.length; start += LOOKED_UP_AT_ONCE) {
    const some = ids.slice(start, start + LOOKED_UP_AT_ONCE);
    const found = await Promise.all(some.map((id) => jobs.get(id)));
    const gone = some.filter((_, index) => found[index] === null);
    await artifacts.remove(gone);
    removed += gone.length;
  }
  return removed;
}
