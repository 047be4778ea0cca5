// A thread exchanges a directory and a link to a directory outside all the time, while files are read,
// written, moved, uploaded and removed through that name: nothing outside is touched or seen.

import { afterEach, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { CprgError } from "../../src/core/errors.ts";
import type { EntryPart } from "../../src/provider/contract.ts";
import { type Ground, ground } from "./ground.ts";

const OPERATIONS = 10_000;
const OPERATIONS_MAX = 200_000;
const SECRET = "secret of the host";

let there: Ground;

afterEach(async () => {
  await there[Symbol.asyncDispose]();
});

/** rename(2) of one over the other's name, for ever. */
const FLIPPER = `
const { mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync, unlinkSync } = require("node:fs");
const { parentPort, workerData } = require("node:worker_threads");
const { place, directory, link, outside } = workerData;
const readlinkOf = (path) => { try { return readlinkSync(path); } catch { return null; } };
let isStopped = false;
let flips = 0;
parentPort.on("message", () => { isStopped = true; });
const flip = () => {
  for (let n = 0; n < 50; n += 1) {
    try {
      renameSync(place, directory); renameSync(link, place);
      renameSync(place, link); renameSync(directory, place);
      flips += 1;
    } catch {
      // An operation made or moved something in between: begin anew.
      rmSync(directory, { recursive: true, force: true });
      const target = readlinkOf(place);
      if (target !== null) unlinkSync(place);
      if (readlinkOf(link) === null) symlinkSync(outside, link);
      try { mkdirSync(place); } catch {}
    }
  }
  if (isStopped) parentPort.postMessage(flips); else setImmediate(flip);
};
parentPort.postMessage("up");
flip();
`;

async function* tree(): AsyncGenerator<EntryPart> {
  yield { type: "directory", mode: 0o755, path: "", size: 0 };
  yield { type: "file", mode: 0o644, path: "planted", size: 1 };
  yield Buffer.from("x");
}

test("10 000 operations race with a directory that becomes a link", async () => {
  there = await ground();
  await there.claim();
  const files = there.holder.heldClaims()[0]?.place.files;
  if (files === undefined) throw new Error("no claim");
  const outside = join(there.root, "../outside");
  mkdirSync(outside);
  for (const name of ["file", "victim"]) writeFileSync(join(outside, name), SECRET);
  mkdirSync(join(there.root, "d"));
  writeFileSync(join(there.root, "d/file"), "inside");
  symlinkSync(outside, join(there.root, "link"));
  const workerData = {
    outside,
    place: join(there.root, "d"),
    directory: join(there.root, "d-aside"),
    link: join(there.root, "link"),
  };
  const flipper = new Worker(FLIPPER, { eval: true, workerData });
  await new Promise((resolve) => flipper.once("message", resolve));

  const signal = new AbortController().signal;
  const seen = new Map<string, number>();
  const operations: (() => Promise<unknown>)[] = [
    async () => {
      const { content } = await files.read("d/file", { offset: 0, length: 0, lengthMax: 1000 });
      if (Buffer.from(content).toString() === SECRET) throw new Error("read outside");
    },
    () => files.write("d/file", Buffer.from("inside"), { parents: false }),
    () => files.write("d/new/file", Buffer.from("inside"), { parents: true }),
    () => files.remove("d/victim", { recursive: true }),
    () => files.remove("d/new", { recursive: true }),
    () => files.rename("d/file", "d/moved"),
    () => files.rename("d/moved", "d/file"),
    () => files.makeDir("d/sub", { parents: false, mode: 0o755 }),
    () => files.put("d/tree", tree(), { type: "directory", parents: false, merge: false, signal }),
    () => files.put("d", tree(), { type: "directory", parents: false, merge: true, signal }),
    async () => {
      for await (const part of files.take("d", signal)) {
        if (part instanceof Uint8Array && Buffer.from(part).toString() === SECRET) {
          throw new Error("downloaded outside");
        }
      }
    },
    async () => {
      const { entries } = await files.list("d", { after: "", limit: 100 });
      if (entries.some(({ name }) => name === "victim")) throw new Error("listed outside");
    },
  ];
  const refused = (): number => (seen.get("PATH_ESCAPES") ?? 0) + (seen.get("IS_LINK") ?? 0);
  const isEnough = (): boolean => (seen.get("served") ?? 0) > 100 && refused() > 100;
  // And more where the machine is so busy that the sides hardly meet.
  for (let count = 0; count < OPERATIONS || (!isEnough() && count < OPERATIONS_MAX); count += 1) {
    const operation = operations[count % operations.length];
    const end = await (operation?.() ?? Promise.resolve()).then(
      () => "served",
      (error: unknown) => {
        if (!CprgError.is(error)) throw error;
        return error.reason ?? error.code;
      },
    );
    seen.set(end, (seen.get(end) ?? 0) + 1);
    if (count % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const flips = new Promise((resolve) => flipper.once("message", resolve));
  flipper.postMessage("stop");
  expect(await flips).toBeGreaterThan(0);
  await flipper.terminate();

  expect(readdirSync(outside).sort()).toEqual(["file", "victim"]);
  for (const name of ["file", "victim"]) {
    expect(readFileSync(join(outside, name), "utf8")).toBe(SECRET);
  }
  // Both sides of the race were met.
  expect(isEnough()).toBe(true);
  expect(seen.get("internal") ?? 0).toBe(0);
}, 60_000);
