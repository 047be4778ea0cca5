// Random numbers that a printed seed brings back (mulberry32).

/** Numbers from 0 to 1, the same for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The seed of a test: from its variable, else a new one; printed, so that a failure can be repeated. */
export function printedSeed(variable: string): number {
  const given = Number(process.env[variable]);
  const seed =
    Number.isInteger(given) && given > 0 ? given : 1 + Math.floor(Math.random() * 2 ** 31);
  console.log(`${variable}=${seed}`);
  return seed;
}
