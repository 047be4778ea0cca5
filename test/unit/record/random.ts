// Random numbers that a failed test can be repeated with: the seed is in its title.

/** A generator of whole numbers below a bound (mulberry32). */
export function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Random bytes: text of every length of UTF-8, broken text, or anything. */
export function randomBytes(random: (below: number) => number, length: number): Uint8Array {
  const kind = random(3);
  if (kind === 0) return Uint8Array.from({ length }, () => random(256));
  const points = ["a", "\n", "é", "\u0000", "€", "\ufeff", "😀", "\u{10ffff}", "\ufffd"];
  const text = Buffer.from(
    Array.from({ length }, () => points[random(points.length)] ?? "").join(""),
  );
  const bytes = new Uint8Array(text.subarray(0, length));
  if (kind === 2 && length > 0) bytes[random(length)] = random(256);
  return bytes;
}

/** Bytes in chunks of random sizes. */
export function* randomChunks(
  random: (below: number) => number,
  bytes: Uint8Array,
  chunkMax: number,
): Generator<Uint8Array> {
  for (let offset = 0; offset < bytes.length; ) {
    const size = 1 + random(chunkMax);
    yield bytes.slice(offset, offset + size);
    offset += size;
  }
}
