/** The border to kernel-calls.c: calls in, outcomes out. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { SECCOMP_WORDS, type SeccompWords } from "./interpreter.ts";

/** One system call; arguments that are missing are 0. */
export interface KernelCall {
  readonly nr: number;
  readonly args: readonly bigint[];
}

/** What became of it. */
export type KernelOutcome =
  | { readonly ending: "returned"; readonly value: number }
  | { readonly ending: "signalled"; readonly signal: number }
  | { readonly ending: "notified"; readonly nr: number; readonly auditArch: number };

/** How kernel-calls.c makes the calls; its head says what each means. */
export type KernelMode = "answers" | "one-by-one" | "entry32" | "notified";

const CALL_WORDS = 7;
const OUTCOME_WORDS = 3;

/** Makes the calls under a filter, or under none. */
export function makeCalls(
  program: string,
  run: {
    readonly mode: KernelMode;
    readonly filter: Uint8Array | undefined;
    readonly calls: readonly KernelCall[];
  },
): KernelOutcome[] {
  const file = join(program, "..", "filter.bpf");
  if (run.filter !== undefined) writeFileSync(file, run.filter);
  const { exitCode, stdout, stderr } = Bun.spawnSync(
    [program, run.mode, run.filter === undefined ? "-" : file],
    { stdin: encodeCalls(run.calls) },
  );
  if (exitCode !== 0) throw new Error(`kernel-calls ${run.mode}: ${exitCode} ${stderr}`);
  const words = new BigInt64Array(Uint8Array.from(stdout).buffer);
  return run.calls.map((_, index) => decodeOutcome(words, index * OUTCOME_WORDS));
}

/** The call as a filter sees it. */
export function toSeccompWords(call: KernelCall, auditArch: number): SeccompWords {
  const words = new Uint32Array(SECCOMP_WORDS);
  words[0] = call.nr;
  words[1] = auditArch;
  for (const [arg, value] of call.args.entries()) {
    words[4 + 2 * arg] = Number(value & 0xffffffffn);
    words[5 + 2 * arg] = Number((value >> 32n) & 0xffffffffn);
  }
  return words;
}

function encodeCalls(calls: readonly KernelCall[]): Uint8Array {
  const words = new BigUint64Array(calls.length * CALL_WORDS);
  for (const [index, { nr, args }] of calls.entries()) {
    words[index * CALL_WORDS] = BigInt(nr);
    for (const [arg, value] of args.entries()) words[index * CALL_WORDS + 1 + arg] = value;
  }
  return new Uint8Array(words.buffer);
}

function decodeOutcome(words: BigInt64Array, at: number): KernelOutcome {
  const first = Number(words[at + 1]);
  switch (words[at]) {
    case 1n:
      return { ending: "returned", value: first };
    case 2n:
      return { ending: "signalled", signal: first };
    case 3n:
      return { ending: "notified", nr: first, auditArch: Number(words[at + 2]) };
    default:
      throw new Error(`an outcome of kind ${words[at]}`);
  }
}
