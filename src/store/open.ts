/** Opens the store that is kept in a file, by a Worker of its own. */

import { resolve } from "node:path";
import type { CprgError } from "../core/errors.ts";
import type { JobSpec } from "../core/job.ts";
import { type Log, silentLog } from "../core/log.ts";
import { STORED_KEYS_MAX, type Store, type TimedDraft } from "./contract.ts";
import type { StoreStats } from "./protocol.ts";
import { WorkerLink } from "./worker-link.ts";

/** The store in a file. */
export interface FileStore extends Store {
  /** Resolves with the reason when the Worker died: nothing can be stored any more. */
  readonly failed: Promise<CprgError>;
  /** Counters of the Worker. */
  stats(): Promise<StoreStats>;
}

/**
 * Opens or creates the file, and its directory with mode 0700. No second server can open it until
 * `close`, or until this process ends, however it ends.
 *
 * @throws CprgError `failed_precondition` when it is in use, newer, or another program's;
 *   `data_loss` when it is damaged
 */
export async function openStore(options: {
  readonly path: string;
  readonly log?: Log;
}): Promise<FileStore> {
  const link = new WorkerLink(new Worker(workerUrl()), options.log ?? silentLog);
  await link.open(resolve(options.path));
  return fileStore(link);
}

/** Inside an executable, paths start at the common folder of its entry points, which is `src`. */
function workerUrl(): URL {
  const path = Bun.isStandaloneExecutable ? "./store/store-worker.ts" : "./store-worker.ts";
  return new URL(path, import.meta.url);
}

function fileStore(link: WorkerLink): FileStore {
  return {
    events: {
      append: (subject, drafts) =>
        link.call(
          "append",
          { subject, drafts: JSON.stringify(drafts) },
          { inputBytes: draftBytes(drafts) },
        ),
      read: (subject, fromSeq, bounds) =>
        link.call("read", { subject, fromSeq, ...bounds }, { answerBytes: bounds.maxBytes }),
      head: (subject) => link.call("head", { subject }),
    },
    jobs: {
      insert: async (job, spec) => {
        await link.call("insert", { job, spec }, { inputBytes: specBytes(spec) });
      },
      get: (id) => link.call("get", { id }),
      spec: (id) => link.call("spec", { id }, { answerBytes: SPEC_BYTES }),
      list: (query) => link.call("list", query, { answerBytes: query.limit * JOB_BYTES }),
      next: (busyTenants, shares = []) => link.call("next", { busyTenants, shares }),
      storedBytes: (tenant) => link.call("storedBytes", { tenant }),
      queuedCount: (tenant) => link.call("queuedCount", { tenant: tenant ?? null }),
      counts: () => link.call("counts", null),
      start: (id, instance, at) => link.call("start", { id, instance, at }),
      finish: (id, owner, outcome, at) => link.call("finish", { id, owner, outcome, at }),
      orphans: (livingInstances) => link.call("orphans", { livingInstances }),
    },
    keys: {
      insert: async (key) => {
        await link.call("insertKey", key);
      },
      list: () => link.call("listKeys", null, { answerBytes: KEYS_BYTES }),
      change: (id, change) => link.call("changeKey", { id, change }),
    },
    check: async () => {
      await link.call("check", null);
    },
    failed: link.failed,
    stats: () => link.call("stats", null),
    close: () => link.close(),
  };
}

/** Rough sizes of a job in a list, and of a spec with its files. */
const JOB_BYTES = 2048;
const SPEC_BYTES = 2 * 1024 * 1024;
/** Rough size of all keys. */
const KEYS_BYTES = STORED_KEYS_MAX * 512;

/** Rough sizes: only output, code and files are large. */
function draftBytes(drafts: readonly TimedDraft[]): number {
  return drafts.reduce((sum, { draft }) => {
    return sum + 512 + (typeof draft.data === "string" ? draft.data.length : 0);
  }, 0);
}

function specBytes(spec: JobSpec): number {
  const files = spec.files.reduce((sum, file) => sum + file.base64.length, 0);
  return 512 + files + (spec.code?.length ?? 0) + (spec.stdinBase64?.length ?? 0);
}
