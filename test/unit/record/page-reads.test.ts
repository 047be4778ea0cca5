import { expect, test } from "bun:test";
import { LOG_PAGE, PAGE_READS_MAX, readPage } from "../../../src/record/page-reads.ts";

/** A store whose reads end when they are told to. */
function heldReads() {
  const reads: { readonly seq: number; end(error?: Error): void }[] = [];
  const read = (_: unknown, seq: number) =>
    new Promise<never[]>((resolve, reject) => {
      reads.push({ seq, end: (error) => (error === undefined ? resolve([]) : reject(error)) });
    });
  return { events: { read }, reads };
}

const page = (events: ReturnType<typeof heldReads>["events"], fromSeq: number) =>
  readPage(events, "job:x", { fromSeq, ...LOG_PAGE });

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("so many pages are read at once, the rest in order, also after one that failed", async () => {
  const { events, reads } = heldReads();
  const count = PAGE_READS_MAX + 3;
  const pages = Array.from({ length: count }, (_, index) => page(events, index + 1));
  const failed = pages[0]?.catch((error: Error) => error.message);
  await turn();
  expect(reads).toHaveLength(PAGE_READS_MAX);
  reads[0]?.end(new Error("no such page"));
  expect(await failed).toBe("no such page");
  await turn();
  expect(reads).toHaveLength(PAGE_READS_MAX + 1);
  for (let index = 1; index < count; index += 1) {
    reads[index]?.end();
    await pages[index];
    await turn();
  }
  expect(reads.map(({ seq }) => seq)).toEqual(pages.map((_, index) => index + 1));
  const last = page(events, 99);
  await turn();
  reads.at(-1)?.end();
  expect(await last).toEqual([]);
});

test("one store does not wait for another", async () => {
  const [one, other] = [heldReads(), heldReads()];
  for (let index = 0; index < PAGE_READS_MAX + 1; index += 1) void page(one.events, 1);
  void page(other.events, 1);
  await turn();
  expect([one.reads.length, other.reads.length]).toEqual([PAGE_READS_MAX, 1]);
});
