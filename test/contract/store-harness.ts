// The stores that the contract suites run against.

import type { Store } from "../../src/store/contract.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { openStore } from "../../src/store/open.ts";
import { TempDir } from "../store/samples.ts";

/** For a test of many calls, each of which may open a store. */
export const REOPENING_TIMEOUT_MS = 60_000;

/** One kind of store. */
export interface StoreKind {
  readonly name: string;
  /** Each call opens the file anew, which takes its time. */
  readonly isReopening?: true;
  /** A fresh, empty store. Disposing it closes it and removes its file. */
  open(): Promise<Store & AsyncDisposable>;
}

/** Every kind; the last one opens its file anew before every call, so nothing lives in memory. */
export const STORE_KINDS: readonly StoreKind[] = [
  {
    name: "memory",
    open: async () => {
      const store = memoryStore();
      return { ...store, [Symbol.asyncDispose]: () => store.close() };
    },
  },
  {
    name: "sqlite",
    open: async () => {
      const folder = new TempDir();
      const store = await openStore({ path: folder.join("cprg.db") });
      const dispose = async () => {
        await store.close();
        folder[Symbol.dispose]();
      };
      return { ...store, [Symbol.asyncDispose]: dispose };
    },
  },
  { name: "sqlite, opened anew before every call", isReopening: true, open: openReopening },
];

async function openReopening(): Promise<Store & AsyncDisposable> {
  const folder = new TempDir();
  const path = folder.join("cprg.db");
  let store = await openStore({ path });
  let turn: Promise<unknown> = Promise.resolve();
  /** One call at a time, each on a store that was just opened. */
  const call = <T>(act: (store: Store) => Promise<T>): Promise<T> => {
    const result = turn.then(async () => {
      await store.close();
      store = await openStore({ path });
      return act(store);
    });
    turn = result.catch(() => undefined);
    return result;
  };
  return {
    events: {
      append: (...args) => call(({ events }) => events.append(...args)),
      read: (...args) => call(({ events }) => events.read(...args)),
      head: (...args) => call(({ events }) => events.head(...args)),
    },
    jobs: {
      insert: (...args) => call(({ jobs }) => jobs.insert(...args)),
      insertOnce: (...args) => call(({ jobs }) => jobs.insertOnce(...args)),
      earlier: (...args) => call(({ jobs }) => jobs.earlier(...args)),
      get: (...args) => call(({ jobs }) => jobs.get(...args)),
      spec: (...args) => call(({ jobs }) => jobs.spec(...args)),
      list: (...args) => call(({ jobs }) => jobs.list(...args)),
      next: (...args) => call(({ jobs }) => jobs.next(...args)),
      placed: (...args) => call(({ jobs }) => jobs.placed(...args)),
      queuedCount: (...args) => call(({ jobs }) => jobs.queuedCount(...args)),
      counts: () => call(({ jobs }) => jobs.counts()),
      start: (...args) => call(({ jobs }) => jobs.start(...args)),
      finish: (...args) => call(({ jobs }) => jobs.finish(...args)),
      orphans: (...args) => call(({ jobs }) => jobs.orphans(...args)),
    },
    sandboxes: {
      insert: (...args) => call(({ sandboxes }) => sandboxes.insert(...args)),
      get: (...args) => call(({ sandboxes }) => sandboxes.get(...args)),
      list: (...args) => call(({ sandboxes }) => sandboxes.list(...args)),
      end: (...args) => call(({ sandboxes }) => sandboxes.end(...args)),
      orphans: (...args) => call(({ sandboxes }) => sandboxes.orphans(...args)),
    },
    execs: {
      insert: (...args) => call(({ execs }) => execs.insert(...args)),
      get: (...args) => call(({ execs }) => execs.get(...args)),
      list: (...args) => call(({ execs }) => execs.list(...args)),
      finish: (...args) => call(({ execs }) => execs.finish(...args)),
      orphans: (...args) => call(({ execs }) => execs.orphans(...args)),
    },
    tasks: {
      insert: (...args) => call(({ tasks }) => tasks.insert(...args)),
      get: (...args) => call(({ tasks }) => tasks.get(...args)),
      sealedEnv: (...args) => call(({ tasks }) => tasks.sealedEnv(...args)),
      list: (...args) => call(({ tasks }) => tasks.list(...args)),
      change: (...args) => call(({ tasks }) => tasks.change(...args)),
      unfinished: (...args) => call(({ tasks }) => tasks.unfinished(...args)),
    },
    storedBytes: (...args) => call((opened) => opened.storedBytes(...args)),
    prune: (...args) => call((opened) => opened.prune(...args)),
    keys: {
      insert: (...args) => call(({ keys }) => keys.insert(...args)),
      list: () => call(({ keys }) => keys.list()),
      change: (...args) => call(({ keys }) => keys.change(...args)),
      remove: (...args) => call(({ keys }) => keys.remove(...args)),
    },
    workerTokens: {
      insert: (...args) => call(({ workerTokens }) => workerTokens.insert(...args)),
      list: () => call(({ workerTokens }) => workerTokens.list()),
      revoke: (...args) => call(({ workerTokens }) => workerTokens.revoke(...args)),
      removeExpired: (...args) => call(({ workerTokens }) => workerTokens.removeExpired(...args)),
    },
    check: () => call((opened) => opened.check()),
    close: () => store.close(),
    [Symbol.asyncDispose]: async () => {
      await turn;
      await store.close();
      folder[Symbol.dispose]();
    },
  };
}
