/**
 * Texts that are looked for in others, all at once: what a search costs grows with the text that is
 * searched, not with how many are looked for.
 */

/** Characters at its start that a text is found by; one with fewer cannot be added. */
export const HEAD_CHARS = 8;
/** Comparisons, of 64 characters each, that one search may make before it is given up. */
export const SEARCH_STEPS_MAX = 100_000;

/** Odd, so that no character of a head is lost (Rabin and Karp, 1987). */
const BASE = 0x01000193;
/** What the character before a head had been multiplied with. */
const BASE_OUT = Array.from({ length: HEAD_CHARS - 1 }).reduce<number>(
  (power) => Math.imul(power, BASE),
  1,
);

/** A part of a text, end exclusive. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

/** Texts with one hash; sorted when they are looked for, so that many come and go quickly. */
interface Bucket {
  readonly texts: Set<string>;
  /** The longest first; null: to be sorted. */
  sorted: readonly string[] | null;
}

/** What is looked for. */
export class TextIndex {
  /** By the hash of their heads. */
  readonly #byHead = new Map<number, Bucket>();
  /** How often each was added. */
  readonly #counts = new Map<string, number>();

  add(text: string): void {
    const count = this.#counts.get(text) ?? 0;
    this.#counts.set(text, count + 1);
    if (count > 0) return;
    const head = headHash(text);
    const bucket = this.#byHead.get(head);
    if (bucket === undefined) this.#byHead.set(head, { texts: new Set([text]), sorted: null });
    else {
      bucket.texts.add(text);
      bucket.sorted = null;
    }
  }

  /** Takes back one `add`. */
  remove(text: string): void {
    const count = this.#counts.get(text) ?? 0;
    if (count > 1) this.#counts.set(text, count - 1);
    if (count !== 1) return;
    this.#counts.delete(text);
    const head = headHash(text);
    const bucket = this.#byHead.get(head);
    bucket?.texts.delete(text);
    if (bucket?.texts.size === 0) this.#byHead.delete(head);
    else if (bucket !== undefined) bucket.sorted = null;
  }

  /**
   * Where the texts are, in order; ranges that overlap are one.
   *
   * @returns null when the search takes more than {@link SEARCH_STEPS_MAX} steps
   */
  find(text: string): readonly TextRange[] | null {
    const ranges: { start: number; end: number }[] = [];
    const budget = { steps: SEARCH_STEPS_MAX };
    let hash = headHash(text);
    for (let at = 0; at + HEAD_CHARS <= text.length; at += 1) {
      if (at > 0) {
        hash = rolled(hash, text.charCodeAt(at - 1), text.charCodeAt(at + HEAD_CHARS - 1));
      }
      const bucket = this.#byHead.get(hash);
      if (bucket === undefined) continue;
      const length = longestAt(bucket, { text, at, budget });
      if (budget.steps < 0) return null;
      if (length === 0) continue;
      const last = ranges.at(-1);
      if (last !== undefined && at < last.end) last.end = Math.max(last.end, at + length);
      else ranges.push({ start: at, end: at + length });
    }
    return ranges;
  }
}

/** The length of the longest text of a bucket that is at a place, or 0. */
function longestAt(
  bucket: Bucket,
  { text, at, budget }: { readonly text: string; readonly at: number; budget: { steps: number } },
): number {
  bucket.sorted ??= [...bucket.texts].sort((a, b) => b.length - a.length);
  for (const candidate of bucket.sorted) {
    budget.steps -= 1 + (candidate.length >>> 6);
    if (budget.steps < 0) return 0;
    if (text.startsWith(candidate, at)) return candidate.length;
  }
  return 0;
}

function headHash(text: string): number {
  let hash = 0;
  for (let at = 0; at < HEAD_CHARS; at += 1) hash = Math.imul(hash, BASE) + text.charCodeAt(at);
  return hash | 0;
}

/** The hash of the next head, from that of one: a character leaves it and one enters. */
function rolled(hash: number, out: number, entering: number): number {
  return (Math.imul(hash - Math.imul(out, BASE_OUT), BASE) + entering) | 0;
}
