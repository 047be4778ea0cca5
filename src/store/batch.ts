/**
 * Group commit: the requests of one batch share one transaction and one sync, and are answered
 * after it. A request that fails is undone alone.
 */

import type { Database } from "bun:sqlite";
import { assert } from "../core/errors.ts";
import type { Pruned, TimedDraft } from "./contract.ts";
import { canGrow } from "./file-growth.ts";
import type { StoreHandlers, StoreOp, StoreRequest, StoreResult } from "./protocol.ts";
import type { SpaceReserve } from "./space-reserve.ts";
import { SqliteEvents } from "./sqlite-events.ts";
import { SqliteExecs } from "./sqlite-execs.ts";
import { SqliteJobs } from "./sqlite-jobs.ts";
import { SqliteKeys } from "./sqlite-keys.ts";
import { SqlitePruning } from "./sqlite-pruning.ts";
import { SqliteSandboxes } from "./sqlite-sandboxes.ts";
import { SqliteTasks } from "./sqlite-tasks.ts";
import { SqliteWorkerTokens } from "./sqlite-worker-tokens.ts";
import { diskFull, fromSqlite, toWire } from "./wire-error.ts";
import { NO_LINES, toWireLines } from "./wire-lines.ts";

/** Ends, and what makes room: they may use the reserve. */
const URGENT: ReadonlySet<StoreOp> = new Set([
  "finish",
  "finishExec",
  "endSandbox",
  "changeTask",
  "prune",
]);
const WRITES: ReadonlySet<StoreOp> = new Set([
  ...(["append", "insert", "insertOnce", "start", "insertSandbox", "insertExec"] as const),
  ...(["insertKey", "changeKey", "removeKeys", "insertTask"] as const),
  ...(["insertWorkerToken", "revokeWorkerToken", "removeWorkerTokens"] as const),
  ...URGENT,
]);

const NOTHING_PRUNED: Pruned = { runs: 0, events: 0, isDone: false };

/** Pages in the write-ahead log from which on they are written to the file; SQLite's own default. */
const CHECKPOINT_PAGES = 1000;

/** What of the reserve a runner uses. */
type Reserve = Pick<SpaceReserve, "isHeld" | "hold" | "release">;

/** Runs batches on an open database. */
export class BatchRunner {
  readonly #db: Database;
  readonly #reserve: Reserve | null;
  readonly #events: SqliteEvents;
  readonly #pruning: SqlitePruning;
  readonly #handlers: StoreHandlers;
  /** The disk has no room for what the file has to grow by. */
  #isStarved = false;
  #commits = 0;
  #requests = 0;

  /** @param reserve space that only ends and pruning may use, when there is no other left */
  constructor(db: Database, reserve: Reserve | null = null) {
    this.#db = db;
    this.#reserve = reserve;
    this.#events = new SqliteEvents(db);
    const events = this.#events;
    const jobs = new SqliteJobs(db, events);
    const sandboxes = new SqliteSandboxes(db);
    const execs = new SqliteExecs(db, events);
    this.#pruning = new SqlitePruning(db, events);
    const keys = new SqliteKeys(db);
    const tasks = new SqliteTasks(db, events);
    const workerTokens = new SqliteWorkerTokens(db);
    this.#handlers = {
      append: ({ subject, drafts, isSilent }) => {
        const lines = events.append(subject, parseDrafts(drafts));
        return isSilent ? NO_LINES : toWireLines(lines);
      },
      read: ({ subject, fromSeq, ...bounds }) => toWireLines(events.read(subject, fromSeq, bounds)),
      head: ({ subject }) => events.head(subject),
      insert: ({ job, spec }) => jobs.insert(job, spec),
      insertOnce: ({ job, spec, request }) => jobs.insertOnce(job, spec, request),
      earlier: ({ tenant, key, since }) => jobs.earlier(tenant, { key, since }),
      get: ({ id }) => jobs.get(id),
      spec: ({ id }) => jobs.spec(id),
      list: (query) => jobs.list(query),
      next: ({ busyTenants, shares }) => jobs.next(busyTenants, shares),
      storedBytes: ({ tenant }) => this.#events.storedBytes(tenant),
      insertKey: (key) => keys.insert(key),
      listKeys: () => keys.list(),
      changeKey: ({ id, change }) => keys.change(id, change),
      removeKeys: ({ ids }) => keys.remove(ids),
      queuedCount: ({ tenant }) => jobs.queuedCount(tenant),
      counts: () => jobs.counts(),
      placed: (query) => jobs.placed(query),
      start: (input) => jobs.start(input),
      finish: (input) => jobs.finish(input),
      orphans: ({ livingInstances }) => jobs.orphans(livingInstances),
      insertSandbox: ({ sandbox }) => sandboxes.insert(sandbox),
      getSandbox: ({ id }) => sandboxes.get(id),
      listSandboxes: (query) => sandboxes.list(query),
      endSandbox: ({ id, reason, at }) => sandboxes.end(id, reason, at),
      orphanSandboxes: ({ livingInstances }) => sandboxes.orphans(livingInstances),
      insertExec: ({ exec }) => execs.insert(exec),
      getExec: ({ id }) => execs.get(id),
      listExecs: (query) => execs.list(query),
      finishExec: ({ id, outcome, at }) => execs.finish(id, outcome, at),
      orphanExecs: ({ livingInstances }) => execs.orphans(livingInstances),
      insertTask: ({ task, sealedEnv }) => tasks.insert(task, sealedEnv),
      getTask: ({ id }) => tasks.get(id),
      taskEnv: ({ id }) => tasks.sealedEnv(id),
      listTasks: (query) => tasks.list(query),
      changeTask: ({ id, change }) => tasks.change(id, change),
      unfinishedTasks: (query) => tasks.unfinished(query),
      insertWorkerToken: (token) => workerTokens.insert(token),
      listWorkerTokens: () => workerTokens.list(),
      revokeWorkerToken: ({ id, at }) => workerTokens.revoke(id, at),
      removeWorkerTokens: ({ before }) => workerTokens.removeExpired(before),
      prune: ({ before }) =>
        this.#isTight ? this.#pruning.tightStep(before) : this.#pruning.step(before),
      check: () => this.#check(),
      stats: () => ({
        commits: this.#commits,
        requests: this.#requests,
        eventRows: events.committedRows,
      }),
    };
  }

  /** Results in the order of requests. What they say is on disk when this returns. */
  run(requests: readonly StoreRequest[]): readonly StoreResult[] {
    const isPruning = requests.some(({ op }) => op === "prune");
    const results = requests.some(({ op }) => WRITES.has(op))
      ? this.#runBounded(requests)
      : requests.map((request) => this.#attempt(request));
    this.#requests += requests.length;
    return isPruning ? this.#endPruning(requests, results) : results;
  }

  /** Whether there is no room but for what is urgent. */
  get #isTight(): boolean {
    return this.#reserve?.isHeld === false || this.#isStarved;
  }

  /** What comes of steps of pruning: one that found no room may find some when it is smaller. */
  #endPruning(
    requests: readonly StoreRequest[],
    results: readonly StoreResult[],
  ): readonly StoreResult[] {
    const isStep = (index: number) => requests[index]?.op === "prune";
    const isFull = results.some((result, index) => isStep(index) && isDiskFull(result));
    const isWorthTrying = this.#isTight && this.#pruning.noteTight({ isFull }) && isFull;
    this.#pruning.checkpoint({ isTight: this.#isTight });
    if (!isWorthTrying) return results;
    return results.map((result, index) =>
      isStep(index) && isDiskFull(result) ? { output: NOTHING_PRUNED } : result,
    );
  }

  /** While there is no room, nothing but ends is written, and what makes some. */
  #runBounded(requests: readonly StoreRequest[]): StoreResult[] {
    if (this.#hasRoom()) return this.#runUrgentAgain(requests);
    const isRefused = ({ op }: StoreRequest) => WRITES.has(op) && !URGENT.has(op);
    const urgent = requests.filter((request) => !isRefused(request));
    const results = this.#runUrgentAgain(urgent).values();
    return requests.map((request) => {
      if (isRefused(request)) return { error: toWire(diskFull()) };
      return results.next().value ?? { error: toWire(diskFull()) };
    });
  }

  #check(): null {
    if (this.#hasRoom()) return null;
    throw diskFull();
  }

  /** Takes the reserve back, if there is room; then the file may grow again by itself. */
  #hasRoom(): boolean {
    if (this.#reserve === null) return true;
    const wasHeld = this.#reserve.isHeld;
    if (!this.#reserve.hold()) return false;
    if (!wasHeld) this.#db.run(`PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    this.#isStarved = !canGrow(this.#db);
    return !this.#isStarved;
  }

  /** Gives the reserve to what is urgent, and not to a file that grows by what was written before. */
  #release(): boolean {
    if (this.#reserve?.release() !== true) return false;
    this.#db.run("PRAGMA wal_autocheckpoint = 0");
    return true;
  }

  /** A full disk costs the reserve, whose space goes to the urgent that found none. */
  #runUrgentAgain(requests: readonly StoreRequest[]): StoreResult[] {
    const results = this.#runWrites(requests);
    const isStuck = ({ op }: StoreRequest, index: number) =>
      URGENT.has(op) && isDiskFull(results[index]);
    if (!results.some(isDiskFull) || !this.#release()) return results;
    const again = this.#runWrites(requests.filter(isStuck)).values();
    return results.map((result, index) => {
      const request = requests[index];
      const isAgain = request !== undefined && isStuck(request, index);
      return isAgain ? (again.next().value ?? result) : result;
    });
  }

  /**
   * When the disk is too full for the whole, requests are tried one by one: the small ones, such as
   * a terminal event, may still find their place.
   */
  #runWrites(requests: readonly StoreRequest[]): StoreResult[] {
    if (requests.length === 0) return [];
    try {
      return this.#transact(requests);
    } catch (error) {
      const isSplit = requests.length > 1 && fromSqlite(error).reason === "DISK_FULL";
      if (!isSplit) return requests.map(() => ({ error: toWire(error) }));
    }
    return requests.flatMap((request) => this.#runWrites([request]));
  }

  #transact(requests: readonly StoreRequest[]): StoreResult[] {
    this.#db.run("BEGIN IMMEDIATE");
    try {
      const results = requests.map((request) => this.#attemptAlone(request));
      this.#db.run("COMMIT");
      this.#commits += 1;
      this.#events.noteCommit();
      return results;
    } catch (error) {
      if (this.#db.inTransaction) this.#db.run("ROLLBACK");
      this.#events.forgetAll();
      throw error;
    }
  }

  /** @throws when SQLite has undone the whole transaction (sqlite.org/lang_transaction.html) */
  #attemptAlone(request: StoreRequest): StoreResult {
    if (!WRITES.has(request.op)) return this.#attempt(request);
    this.#db.run("SAVEPOINT request");
    this.#events.noteChanges();
    try {
      const output = this.#handle(request);
      this.#db.run("RELEASE request");
      return { output };
    } catch (error) {
      if (!this.#db.inTransaction) throw error;
      this.#db.run("ROLLBACK TO request");
      this.#db.run("RELEASE request");
      this.#events.forgetChanges();
      return { error: toWire(error) };
    }
  }

  #attempt(request: StoreRequest): StoreResult {
    try {
      return { output: this.#handle(request) };
    } catch (error) {
      return { error: toWire(error) };
    }
  }

  #handle(request: StoreRequest): unknown {
    assert(Object.hasOwn(this.#handlers, request.op), `the store has no ${request.op}`);
    const handle = this.#handlers[request.op] as (input: StoreRequest["input"]) => unknown;
    return handle(request.input);
  }
}

function isDiskFull(result: StoreResult | undefined): boolean {
  return result !== undefined && "error" in result && result.error.options.reason === "DISK_FULL";
}

function parseDrafts(drafts: string | readonly TimedDraft[]): readonly TimedDraft[] {
  return typeof drafts === "string" ? (JSON.parse(drafts) as TimedDraft[]) : drafts;
}
