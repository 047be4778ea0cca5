/**
 * Lines of a log on their way from the Worker: one text instead of an object for each, which the main
 * thread would take in at ten times the price.
 */

import { assert } from "../core/errors.ts";
import type { EventLine } from "./contract.ts";

/** Lines as they are sent. A line holds no newline, because JSON escapes it. */
export interface WireLines {
  readonly seqs: readonly number[];
  /** The lines with a newline between two. */
  readonly text: string;
}

/** What is sent of an append that nobody asks the lines of. */
export const NO_LINES: WireLines = { seqs: [], text: "" };

/** Lines as they are sent. */
export function toWireLines(lines: readonly EventLine[]): WireLines {
  return {
    seqs: lines.map(({ seq }) => seq),
    text: lines.map(({ line }) => line).join("\n"),
  };
}

/** Lines as they were. */
export function fromWireLines({ seqs, text }: WireLines): EventLine[] {
  if (seqs.length === 0) return [];
  const lines = text.split("\n");
  assert(lines.length === seqs.length, "a line of a log holds a newline");
  return lines.map((line, index) => ({ seq: seqs[index] ?? 0, line }));
}
