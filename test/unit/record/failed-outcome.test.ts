import { expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { outcomeError } from "../../../src/record/failed-outcome.ts";

test("outcomeError() has step and hint of an error, and hides what is none of ours", () => {
  const setup = { step: "descriptors", index: 0, errno: 24, errnoName: "EMFILE" };
  const error = new CprgError("unavailable", "Cannot start", { setup, hint: "ulimit -n" });
  expect(outcomeError(error)).toEqual({
    message: "Cannot start",
    step: "descriptors",
    hint: "ulimit -n",
  });
  expect(outcomeError(new Error("secret")).message).not.toContain("secret");
});
