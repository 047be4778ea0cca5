import { expect, test } from "bun:test";
import { verifyExport } from "../../src/core/verify.ts";
import { exportLog } from "../../src/record/export.ts";
import { openStore } from "../../src/store/open.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import { NOON, sampleJob, sampleOutcome, sampleSpec, stdout, TempDir } from "./samples.ts";

const ROWS = 200;
const key = ephemeralSigningKey();

/** The export of a finished job with so many rows, as the store keeps them. */
async function exportedJob(): Promise<Buffer> {
  using folder = new TempDir();
  const store = await openStore({ path: folder.join("cprg.db") });
  const { id } = sampleJob();
  await store.jobs.insert(sampleJob({ id }), sampleSpec());
  const job = await store.jobs.start(id, "here", NOON);
  const drafts = Array.from({ length: ROWS - 2 }, (_, index) => stdout(`${index} é`));
  await store.events.append(`job:${id}`, drafts);
  await store.jobs.finish(id, job?.owner ?? null, sampleOutcome(), NOON);
  const chunks: Uint8Array[] = [];
  for await (const chunk of exportLog({ store, key, subject: `job:${id}` })) chunks.push(chunk);
  await store.close();
  return Buffer.concat(chunks);
}

test(`verifyExport() refuses every byte of a ${ROWS}-row export changed`, async () => {
  const file = await exportedJob();
  expect(await verifyExport(file, key)).toMatchObject({ ok: true, count: ROWS });
  const accepted: number[] = [];
  for (let at = 0; at < file.length; at += 1) {
    const right = file[at] ?? 0;
    file[at] = right ^ (1 + (at % 255));
    if ((await verifyExport(file, key)).ok) accepted.push(at);
    file[at] = right;
  }
  expect(accepted).toEqual([]);
  expect((await verifyExport(file, key)).ok).toBe(true);
}, 120_000);

test(`verifyExport() refuses bytes of a ${ROWS}-row export removed, added and doubled`, async () => {
  const file = await exportedJob();
  for (let at = 0; at < file.length; at += 41) {
    const [before, after] = [file.subarray(0, at), file.subarray(at)];
    for (const changed of [
      Buffer.concat([before, after.subarray(1)]),
      Buffer.concat([before, Buffer.from("0"), after]),
      Buffer.concat([before, Buffer.from("\n"), after]),
      Buffer.concat([before, after.subarray(0, 1), after]),
    ]) {
      expect([at, (await verifyExport(changed, key)).ok]).toEqual([at, false]);
    }
  }
}, 60_000);

test(`verifyExport() refuses a ${ROWS}-row export cut at every line, and two lines swapped`, async () => {
  const file = await exportedJob();
  const lines = file.toString().trimEnd().split("\n");
  expect(lines).toHaveLength(ROWS + 1);
  const seal = lines.at(-1) ?? "";
  for (let index = 0; index < ROWS; index += 1) {
    const kept = lines.slice(0, index);
    const swapped = lines.with(index, lines[index + 1] ?? "").with(index + 1, lines[index] ?? "");
    for (const changed of [kept, [...kept, seal], lines.toSpliced(index, 1), swapped]) {
      const text = changed.map((line) => `${line}\n`).join("");
      expect([index, (await verifyExport(Buffer.from(text), key)).ok]).toEqual([index, false]);
    }
  }
});
