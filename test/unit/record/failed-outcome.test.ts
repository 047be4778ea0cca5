import { expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { outcomeError } from "../../../src/record/failed-outcome.ts";

test("outcomeError() says what to do about descriptors that ran out", () => {
  const setup = { step: "pipe", index: 0, errno: 24, errnoName: "EMFILE" };
  const error = new CprgError("internal", "Cannot create sandbox", { setup });
  expect(outcomeError(error)).toMatchObject({
    step: "pipe",
    hint: expect.stringContaining("ulimit -n"),
  });
  const own = new CprgError("internal", "Cannot create sandbox", { setup, hint: "own" });
  expect(outcomeError(own).hint).toBe("own");
});
