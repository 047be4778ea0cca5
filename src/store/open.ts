/** Opens the store that is kept in a file, by a Worker of its own. */

import { resolve } from "node:path";
import type { CprgError } from "../core/errors.ts";
import type { JobSpec } from "../core/job.ts";
import { type Log, silentLog } from "../core/log.ts";
import { eventOf } from "../core/output-text.ts";
import { STORED_KEYS_MAX, type Store, type TimedDraft, WORKER_TOKENS_MAX } from "./contract.ts";
import type { StoreStats } from "./protocol.ts";
import { fromWireLines } from "./wire-lines.ts";
import { WorkerLink } from "./worker-link.ts";

/** The store in a file. */
export interface FileStore extends Store {
  /** Resolves with the reason when the Worker died: nothing can be stored any more. */
  readonly failed: Promise<CprgError>;
  /** Has it called whenever the disk is too full for what was asked. */
  onDiskFull(listener: () => void): void;
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
  return {
    ...storeOver(link),
    failed: link.failed,
    onDiskFull: (listener) => link.onDiskFull(listener),
    stats: () => link.call("stats", null),
  };
}

/** Inside an executable, paths start at the common folder of its entry points, which is `src`. */
function workerUrl(): URL {
  const path = Bun.isStandaloneExecutable ? "./store/store-worker.ts" : "./store-worker.ts";
  return new URL(path, import.meta.url);
}

function storeOver(link: WorkerLink): Store {
  return {
    events: {
      append: async (subject, drafts, { isSilent = false } = {}) => {
        const inputBytes = draftBytes(drafts);
        const { sent, transfer } = draftsForWorker(drafts, inputBytes);
        const input = { subject, drafts: sent, isSilent };
        return fromWireLines(await link.call("append", input, { inputBytes, transfer }));
      },
      read: async (subject, fromSeq, bounds) => {
        const size = { answerBytes: bounds.maxBytes };
        return fromWireLines(await link.call("read", { subject, fromSeq, ...bounds }, size));
      },
      head: (subject) => link.call("head", { subject }),
    },
    jobs: {
      insert: async (job, spec) => {
        await link.call("insert", { job, spec }, { inputBytes: specBytes(spec) });
      },
      insertOnce: (job, spec, request) =>
        link.call("insertOnce", { job, spec, request }, { inputBytes: specBytes(spec) }),
      earlier: (tenant, { key, since }) => link.call("earlier", { tenant, key, since }),
      get: (id) => link.call("get", { id }),
      spec: (id) => link.call("spec", { id }, { answerBytes: SPEC_BYTES }),
      list: (query) => link.call("list", query, { answerBytes: query.limit * JOB_BYTES }),
      next: (busyTenants, shares = []) => link.call("next", { busyTenants, shares }),
      queuedCount: (tenant) => link.call("queuedCount", { tenant: tenant ?? null }),
      counts: () => link.call("counts", null),
      placed: (query) => link.call("placed", query, { answerBytes: query.limit * JOB_BYTES }),
      start: (id, instance, at, workerId) =>
        link.call("start", { id, instance, at, workerId: workerId ?? null }),
      finish: (id, owner, outcome, at) => link.call("finish", { id, owner, outcome, at }),
      orphans: (livingInstances) => link.call("orphans", { livingInstances }),
    },
    ...sandboxStores(link),
    tasks: {
      insert: async (task, sealedEnv) => {
        await link.call("insertTask", { task, sealedEnv }, { inputBytes: TASK_BYTES });
      },
      get: (id) => link.call("getTask", { id }, { answerBytes: TASK_BYTES }),
      sealedEnv: (id) => link.call("taskEnv", { id }, { answerBytes: TASK_BYTES }),
      list: (query) => link.call("listTasks", query, { answerBytes: query.limit * TASK_BYTES }),
      change: (id, change) => link.call("changeTask", { id, change }, { inputBytes: TASK_BYTES }),
      unfinished: (query) =>
        link.call("unfinishedTasks", query, { answerBytes: query.limit * TASK_BYTES }),
    },
    storedBytes: (tenant) => link.call("storedBytes", { tenant }),
    prune: (before) => link.call("prune", { before }),
    keys: {
      insert: async (key) => {
        await link.call("insertKey", key);
      },
      list: () => link.call("listKeys", null, { answerBytes: KEYS_BYTES }),
      change: (id, change) => link.call("changeKey", { id, change }),
      remove: async (ids) => {
        await link.call("removeKeys", { ids });
      },
    },
    workerTokens: {
      insert: async (token) => {
        await link.call("insertWorkerToken", token, { inputBytes: WORKER_TOKEN_BYTES });
      },
      list: () => link.call("listWorkerTokens", null, { answerBytes: WORKER_TOKENS_BYTES }),
      revoke: (id, at) => link.call("revokeWorkerToken", { id, at }),
      removeExpired: (before) => link.call("removeWorkerTokens", { before }),
    },
    check: async () => {
      await link.call("check", null);
    },
    close: () => link.close(),
  };
}

/** Those of sandboxes and their execs. */
function sandboxStores(link: WorkerLink): Pick<FileStore, "sandboxes" | "execs"> {
  return {
    sandboxes: {
      insert: async (sandbox) => {
        await link.call("insertSandbox", { sandbox });
      },
      get: (id) => link.call("getSandbox", { id }),
      list: (query) =>
        link.call("listSandboxes", query, { answerBytes: query.limit * SANDBOX_BYTES }),
      end: (id, reason, at) => link.call("endSandbox", { id, reason, at }),
      orphans: (livingInstances) => link.call("orphanSandboxes", { livingInstances }),
    },
    execs: {
      insert: async (exec) => {
        await link.call("insertExec", { exec }, { inputBytes: EXEC_BYTES });
      },
      get: (id) => link.call("getExec", { id }, { answerBytes: EXEC_BYTES }),
      list: (query) => link.call("listExecs", query, { answerBytes: query.limit * EXEC_BYTES }),
      finish: (id, outcome, at) => link.call("finishExec", { id, outcome, at }),
      orphans: (livingInstances) => link.call("orphanExecs", { livingInstances }),
    },
  };
}

/** Rough sizes: of each in a list, and of a spec with its files. */
const JOB_BYTES = 2048;
const SANDBOX_BYTES = 2048;
const EXEC_BYTES = 4096;
const TASK_BYTES = 16 * 1024;
const SPEC_BYTES = 2 * 1024 * 1024;
/** Rough size of all keys. */
const KEYS_BYTES = STORED_KEYS_MAX * 512;

const WORKER_TOKEN_BYTES = 4096;
const WORKER_TOKENS_BYTES = WORKER_TOKENS_MAX * 512;

/** Bytes of a draft from which on a clone is cheaper than JSON, which looks at every character. */
const CLONE_BYTES_LEAST = 1024;

/** What is sent of drafts, and the buffers in it that need no copy. */
interface SentDrafts {
  readonly sent: string | readonly TimedDraft[];
  readonly transfer: readonly ArrayBuffer[];
}

function draftsForWorker(drafts: readonly TimedDraft[], bytes: number): SentDrafts {
  // JSON has no NaN: a time that is none must arrive as such, to be refused.
  const isText =
    bytes < drafts.length * CLONE_BYTES_LEAST && drafts.every(({ at }) => Number.isFinite(at));
  if (isText) {
    const texts = drafts.map(({ at, draft }) => ({ at, draft: eventOf(draft) }));
    return { sent: JSON.stringify(texts), transfer: [] };
  }
  const transfer = drafts.flatMap(({ draft }) => wholeBuffer(draft));
  return { sent: drafts, transfer };
}

/** The buffer of output that fills it; a part of one is copied. */
function wholeBuffer(draft: TimedDraft["draft"]): ArrayBuffer[] {
  if (!("bytes" in draft)) return [];
  const { buffer, byteLength } = draft.bytes;
  return byteLength === buffer.byteLength ? [buffer] : [];
}

/** Rough sizes: only output, code and files are large. */
function draftBytes(drafts: readonly TimedDraft[]): number {
  return drafts.reduce((sum, { draft }) => {
    if ("bytes" in draft) return sum + 512 + draft.bytes.length;
    return sum + 512 + (typeof draft.data === "string" ? draft.data.length : 0);
  }, 0);
}

function specBytes(spec: JobSpec): number {
  const files = spec.files.reduce((sum, file) => sum + file.base64.length, 0);
  return 512 + files + (spec.code?.length ?? 0) + (spec.stdinBase64?.length ?? 0);
}
