/** "Did you mean": the known word nearest to a mistyped one. */

/** Longest word that is compared; longer ones are no typing mistakes. */
const WORD_LENGTH_MAX = 64;

/** The one candidate that starts with the word, else the nearest within a third of its length. */
export function nearest(word: string, candidates: readonly string[]): string | null {
  if (word.length > WORD_LENGTH_MAX) return null;
  const longer = candidates.filter((candidate) => word !== "" && candidate.startsWith(word));
  if (longer.length === 1) return longer[0] ?? null;
  const limit = Math.max(1, Math.floor(word.length / 3));
  let best: string | null = null;
  let bestDistance = limit + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein distance, two adjacent letters swapped counting as one edit. */
export function editDistance(left: string, right: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const same = left[row - 1] === right[column - 1];
      let cost = Math.min(
        (last[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (same ? 0 : 1),
      );
      const swapped =
        row > 1 &&
        column > 1 &&
        left[row - 1] === right[column - 2] &&
        left[row - 2] === right[column - 1];
      if (swapped) cost = Math.min(cost, (beforeLast[column - 2] ?? 0) + 1);
      current.push(cost);
    }
    beforeLast = last;
    last = current;
  }
  return last[right.length] ?? 0;
}
