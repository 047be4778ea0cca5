import { describe, expect, test } from "bun:test";
import { HEAD_CHARS, TextIndex, type TextRange } from "../../../src/core/text-index.ts";
import { Random } from "../../http/fuzz/random.ts";

/** The same, found one after the other. */
function findOneByOne(texts: Iterable<string>, text: string): TextRange[] {
  const isHidden = new Array<boolean>(text.length + 1).fill(false);
  const begins = new Set<number>();
  let coveredTo = 0;
  const all = [...texts];
  for (let at = 0; at < text.length; at += 1) {
    const lengths = all.filter((one) => text.startsWith(one, at)).map(({ length }) => length);
    if (lengths.length === 0) continue;
    if (at >= coveredTo) begins.add(at);
    coveredTo = Math.max(coveredTo, at + Math.max(...lengths));
    isHidden.fill(true, at, coveredTo);
  }
  const ranges: { start: number; end: number }[] = [];
  for (let at = 0; at < text.length; at += 1) {
    if (!isHidden[at]) continue;
    const last = ranges.at(-1);
    if (last === undefined || begins.has(at) || last.end !== at)
      ranges.push({ start: at, end: at + 1 });
    else last.end = at + 1;
  }
  return ranges;
}

describe("TextIndex", () => {
  test("finds what a search one by one finds, while texts come and go", () => {
    const seed = Date.now() % 2 ** 31;
    const random = new Random(seed);
    const word = (length: number): string =>
      Array.from({ length }, () => random.pick(["a", "b", "é", "\u{1f98a}"])).join("");
    const index = new TextIndex();
    const held: string[] = [];
    let found = 0;
    for (let round = 0; round < 500; round += 1) {
      const text = word(HEAD_CHARS + random.whole(3));
      index.add(text);
      held.push(text);
      if (held.length > 20) index.remove(held.splice(random.whole(held.length - 1), 1)[0] ?? "");
      const searched = word(10) + random.pick(held) + word(random.whole(60)) + random.pick(held);
      const ranges = index.find(searched);
      expect({ seed, round, ranges }).toEqual({
        seed,
        round,
        ranges: findOneByOne(held, searched),
      });
      found += ranges?.length ?? 0;
    }
    expect(found).toBeGreaterThan(500);
    for (const text of held) index.remove(text);
    expect(index.find(held.join(""))).toEqual([]);
  });

  test("finds nothing in what is shorter than a head", () => {
    const index = new TextIndex();
    index.add("12345678");
    for (const text of ["", "1", "1234567"]) expect(index.find(text)).toEqual([]);
    expect(index.find("12345678")).toEqual([{ start: 0, end: HEAD_CHARS }]);
  });
});
