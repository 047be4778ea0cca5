import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { buildFuzzers, runFuzzer, sourceFolder } from "./fuzz/fuzzer.ts";
import { type FuzzTarget, fuzzTargets } from "./fuzz/seeds.ts";
import { removeTemporaryDirectories, temporaryDirectory } from "./native.ts";

/** Always the same inputs, so that what is red once stays red; `make fuzz` looks for new ones. */
const fixed = ["-runs=5000", "-seed=1"];

/** One line of a source and what breaks it, for the target that is to notice. */
const mistakes: [FuzzTarget, string, string, string][] = [
  ["request", "message.c", "room = message->length - offset", "room = message->length"],
  ["archive", "archive-stream.c", "|| path_is_plain(path, CPRG_DEPTH_MAX)", "|| 1"],
];

requireHost({ linux: true, programs: ["clang-14"] }).describe("fuzzing", () => {
  let out = "";
  beforeAll(() => {
    out = temporaryDirectory();
    buildFuzzers(out);
  }, 300_000);
  afterAll(removeTemporaryDirectories);

  test.each([...fuzzTargets])(
    "%s holds against the corpus and what grows from it",
    async (target) => {
      const work = join(out, target);
      mkdirSync(work);
      const found = await runFuzzer(target, { out, work, options: fixed });
      expect(found.crash, found.output).toBeUndefined();
      expect(found.runs).toBeGreaterThanOrEqual(5000);
    },
    300_000,
  );

  test.each(mistakes)(
    "%s notices a mistake in %s",
    async (target, name, line, wrong) => {
      const work = temporaryDirectory();
      const folder = join(work, "ffi");
      cpSync(sourceFolder, folder, { recursive: true });
      const source = readFileSync(join(folder, name), "utf8");
      expect(source).toContain(line);
      writeFileSync(join(folder, name), source.replace(line, wrong));
      buildFuzzers(work, { folder, targets: [target] });
      const found = await runFuzzer(target, {
        out: work,
        work,
        options: ["-runs=100000", "-seed=1"],
      });
      expect(found.crash).toBeDefined();
    },
    300_000,
  );
});
