import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { DEFAULT_GROUNDS, GROUNDS, groundNamed } from "../../vm/grounds.ts";

test("what a ground runs of the suite is there", () => {
  for (const { name, files = [] } of GROUNDS) {
    const missing = files.filter(
      (file) => file !== "executable" && !existsSync(`test/sandbox/${file}.test.ts`),
    );
    expect([name, missing]).toEqual([name, []]);
    expect(new Set(files).size).toBe(files.length);
  }
});

test("the grounds of make test-vm run all of it", () => {
  for (const name of DEFAULT_GROUNDS) expect(groundNamed(name).files).toBeUndefined();
  expect(() => groundNamed("none")).toThrow("v2-root");
});
