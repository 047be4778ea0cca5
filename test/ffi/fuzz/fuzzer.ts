/**
 * Builds the fuzzers of this folder and runs one of them on its corpus: the seeds of seeds.ts and
 * the inputs kept in `corpus/<target>.hex`, one a line in hex; a line that begins with # says what
 * the next one once broke.
 */
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type FuzzTarget, fuzzSeeds } from "./seeds.ts";

const repository = join(import.meta.dir, "../../..");

/** Where the sources are, so that a test can build others than the repository's. */
export const sourceFolder = join(repository, "ffi");

export function corpusPath(target: FuzzTarget): string {
  return join(import.meta.dir, "corpus", `${target}.hex`);
}

/** The kept inputs, without the seeds. */
export function readKept(target: FuzzTarget): Uint8Array[] {
  return readFileSync(corpusPath(target), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => new Uint8Array(Buffer.from(line, "hex")));
}

/** Keeps a crash: the input that found a mistake must find it again should it come back. */
export function keepCrash(target: FuzzTarget, bytes: Uint8Array, reason: string): void {
  const line = `# ${reason}\n${Buffer.from(bytes).toString("hex")}\n`;
  appendFileSync(corpusPath(target), line);
}

/** Writes seeds and kept inputs as files: the directory. */
export function writeCorpus(target: FuzzTarget, directory: string): string {
  mkdirSync(directory, { recursive: true });
  for (const [index, bytes] of [...fuzzSeeds[target](), ...readKept(target)].entries()) {
    writeFileSync(join(directory, `${index}`), bytes);
  }
  return directory;
}

/** Builds all fuzzers into `out`; throws what the compiler said. */
export function buildFuzzers(
  out: string,
  { folder = sourceFolder, targets = [] as readonly FuzzTarget[], extra = "" } = {},
): void {
  const goals =
    targets.length === 0 ? ["fuzzers"] : targets.map((target) => join(out, `fuzz-${target}`));
  const made = Bun.spawnSync(
    [
      "make",
      "-j2",
      "-C",
      folder,
      `OUT=${out}`,
      `FUZZ_DIR=${import.meta.dir}`,
      `EXTRA=${extra}`,
    ].concat(goals),
    { stdout: "pipe", stderr: "pipe" },
  );
  if (made.exitCode !== 0) throw new Error(`make failed: ${made.stdout}${made.stderr}`);
}

export interface Found {
  readonly output: string;
  /** Runs of the target, and edges of its code that they reached. */
  readonly runs: number;
  readonly edges: number;
  /** The input that broke it. */
  readonly crash: Uint8Array | undefined;
}

export interface FuzzOptions {
  /** The directory with the built fuzzers. */
  readonly out: string;
  /** An empty directory for the corpus, to which the fuzzer adds what it finds. */
  readonly work: string;
  /** More options of libFuzzer, such as -runs=1000. */
  readonly options: readonly string[];
}

/** Runs one target until it has found a crash or its options end it. */
export async function runFuzzer(target: FuzzTarget, given: FuzzOptions): Promise<Found> {
  const corpus = writeCorpus(target, join(given.work, "corpus"));
  const artifacts = join(given.work, "artifacts");
  mkdirSync(artifacts, { recursive: true });
  const ran = Bun.spawn(
    [
      join(given.out, `fuzz-${target}`),
      "-timeout=10",
      "-max_len=4096",
      "-use_value_profile=1",
      "-print_final_stats=1",
      `-artifact_prefix=${artifacts}/`,
      ...given.options,
      corpus,
    ],
    { stdout: "ignore", stderr: "pipe" },
  );
  const output = await new Response(ran.stderr).text();
  const code = await ran.exited;
  const crashes = readdirSync(artifacts);
  if (code !== 0 && crashes.length === 0) throw new Error(`fuzz-${target}: ${code}: ${output}`);
  const number = (pattern: RegExp): number => Number([...output.matchAll(pattern)].at(-1)?.[1]);
  return {
    output,
    runs: number(/number_of_executed_units: (\d+)/g),
    edges: number(/ cov: (\d+)/g),
    crash: code === 0 ? undefined : readFileSync(join(artifacts, crashes[0] ?? "")),
  };
}
