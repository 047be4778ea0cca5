// Runs the fuzzers for a bounded time each. `make fuzz`.
//
//   bun test/ffi/fuzz/run.ts                        60 s for each target
//   bun test/ffi/fuzz/run.ts --seconds=600 plan     longer, one target
//   bun test/ffi/fuzz/run.ts --keep                 writes the smallest corpus that reaches as much
//
// A crash is printed, added to the kept corpus, and makes the exit code 1.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildFuzzers, corpusPath, keepCrash, readKept, runFuzzer } from "./fuzzer.ts";
import { type FuzzTarget, fuzzSeeds, fuzzTargets } from "./seeds.ts";

/** Bytes of one kept corpus, before hex: it is committed. */
const keptBytesMax = 16_384;

const { values, positionals } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    keep: { type: "boolean", default: false },
  },
  allowPositionals: true,
});
const selected = fuzzTargets.filter(
  (target) => positionals.length === 0 || positionals.includes(target),
);
const out = mkdtempSync(join(tmpdir(), "cprg-fuzz-"));
try {
  buildFuzzers(out, { targets: selected });
  for (const target of selected) await fuzz(target);
} finally {
  rmSync(out, { recursive: true, force: true });
}

async function fuzz(target: FuzzTarget): Promise<void> {
  const work = join(out, `work-${target}`);
  mkdirSync(work);
  const options = [`-max_total_time=${values.seconds}`];
  const found = await runFuzzer(target, { out, work, options });
  console.log(`${target}: ${found.runs} runs, ${found.edges} edges`);
  if (found.crash !== undefined) {
    console.error(found.output);
    keepCrash(target, found.crash, found.output.match(/^(.*(not so|ERROR|never):.*)$/m)?.[1] ?? "");
    process.exitCode = 1;
  } else if (values.keep) {
    keep(target, work);
  }
}

/** The inputs of the run that reach all it reached, the smallest first, up to keptBytesMax. */
function keep(target: FuzzTarget, work: string): void {
  const merged = join(work, "merged");
  mkdirSync(merged);
  for (const [index, bytes] of fuzzSeeds[target]().entries()) {
    writeFileSync(join(merged, `seed-${index}`), bytes);
  }
  const crashes = readFileSync(corpusPath(target), "utf8").match(/^#.*\n.*\n/gm) ?? [];
  const ran = Bun.spawnSync([
    join(out, `fuzz-${target}`),
    "-merge=1",
    merged,
    join(work, "corpus"),
  ]);
  if (ran.exitCode !== 0) throw new Error(`merge: ${ran.stderr}`);
  const inputs = readdirSync(merged)
    .filter((name) => !name.startsWith("seed-"))
    .map((name) => readFileSync(join(merged, name)))
    .sort((a, b) => a.byteLength - b.byteLength);
  const lines: string[] = [];
  let bytesLeft = keptBytesMax;
  for (const bytes of inputs) {
    bytesLeft -= bytes.byteLength;
    if (bytesLeft >= 0) lines.push(`${bytes.toString("hex")}\n`);
  }
  writeFileSync(corpusPath(target), [...crashes, ...lines].join(""));
  console.log(`${target}: ${readKept(target).length} of ${inputs.length} inputs kept`);
}
