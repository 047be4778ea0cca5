import { expect, test } from "bun:test";
import type { Subject } from "../../src/core/event.ts";
import { Feed } from "../../src/record/feed.ts";
import { openStore } from "../../src/store/open.ts";
import { allLines, finished, stdout, TempDir } from "./samples.ts";

const SUBJECT: Subject = "exec:crowd";
const EVENTS = 20_000;
const READERS = 50;

/** A generator of the same numbers every time (Numerical Recipes, chapter 7). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Takes one row for each time that it is opened, and every row after `release`. */
class Gate {
  #released = false;
  #opened = Promise.withResolvers<void>();

  async pass(): Promise<void> {
    if (this.#released) return;
    await this.#opened.promise;
    this.#opened = Promise.withResolvers<void>();
  }

  open(): void {
    this.#opened.resolve();
  }

  release(): void {
    this.#released = true;
    this.#opened.resolve();
  }
}

/** Who joins now: everybody from `first` on whose time has come. */
function joining(joinsAt: readonly number[], first: number, appended: number): number[] {
  return joinsAt.flatMap((at, index) => (index >= first && at <= appended ? [index] : []));
}

async function readRows(feed: Feed, fromSeq: number, gate?: Gate): Promise<string> {
  const rows: string[] = [];
  const { signal } = new AbortController();
  for await (const page of feed.subscribe(SUBJECT, { fromSeq, signal })) {
    for (const { line } of page) {
      await gate?.pass();
      rows.push(line);
    }
  }
  return rows.join("\n");
}

test(`${READERS} readers that join anywhere in ${EVENTS} events each equal the replay, byte for byte`, async () => {
  using folder = new TempDir();
  const store = await openStore({ path: folder.join("cprg.db") });
  const feed = new Feed(store.events);
  const random = numbers(7);
  const gate = new Gate();
  const joinsAt = Array.from({ length: READERS }, () => random(EVENTS)).sort((a, b) => a - b);
  const readers: { fromSeq: number; rows: Promise<string> }[] = [];
  let appended = 0;
  while (appended < EVENTS) {
    for (const index of joining(joinsAt, readers.length, appended)) {
      // The first is slow; some want everything, some start behind or ahead of what there is.
      const fromSeq = index % 2 === 0 ? 1 : 1 + random(EVENTS);
      const rows = readRows(feed, fromSeq, index === 0 ? gate : undefined);
      readers.push({ fromSeq, rows });
    }
    const size = Math.min(1 + random(40), EVENTS - appended);
    const drafts = Array.from({ length: size }, (_, index) => stdout(`row ${appended + index}`));
    // Several calls at a time, as several streams make them.
    const half = Math.ceil(size / 2);
    await Promise.all([
      feed.append(SUBJECT, drafts.slice(0, half)),
      feed.append(SUBJECT, drafts.slice(half)),
    ]);
    appended += size;
    gate.open();
  }
  await feed.append(SUBJECT, [finished()]);
  gate.release();
  const replay = (await allLines(store.events, SUBJECT)).map(({ line }) => line);
  expect(replay).toHaveLength(EVENTS + 1);
  expect(readers).toHaveLength(READERS);
  for (const { fromSeq, rows } of readers) {
    const wanted = replay.slice(fromSeq - 1).join("\n");
    expect((await rows) === wanted).toBe(true);
  }
  expect(feed.subscribers).toBe(0);
  await store.close();
}, 60_000);
