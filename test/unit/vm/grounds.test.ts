import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { ALL_GROUNDS, DEFAULT_GROUNDS, GROUNDS, groundNamed } from "../../vm/grounds.ts";

test("what a ground runs of the suite is there", () => {
  for (const { name, files = [] } of GROUNDS) {
    const missing = files.filter(
      (file) => file !== "executable" && !existsSync(`test/sandbox/${file}.test.ts`),
    );
    expect([name, missing]).toEqual([name, []]);
    expect(new Set(files).size).toBe(files.length);
  }
});

test("the five grounds run all of it, root and a user of this machine among them", () => {
  expect(ALL_GROUNDS).toEqual(["here-root", "here-user", ...DEFAULT_GROUNDS]);
  expect(new Set(ALL_GROUNDS).size).toBe(5);
  for (const name of ALL_GROUNDS) expect(groundNamed(name).files).toBeUndefined();
  expect(() => groundNamed("none")).toThrow("v2-root");
});
