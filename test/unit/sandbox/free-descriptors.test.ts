import { expect, test } from "bun:test";
import { closeSync, openSync } from "node:fs";
import { freeDescriptors } from "../../../src/sandbox/free-descriptors.ts";

test("freeDescriptors() falls with what is opened", () => {
  const before = freeDescriptors();
  const opened = Array.from({ length: 50 }, () => openSync("/dev/null", "r"));
  const between = freeDescriptors();
  for (const descriptor of opened) closeSync(descriptor);
  expect(before - between).toBeGreaterThan(40);
  expect(before).toBeFinite();
});
