import { expect, test } from "bun:test";
import { languageRefusal } from "../../../src/cli/run-language.ts";
import { CprgError, invalid } from "../../../src/core/errors.ts";

test("languageRefusal() puts the refusal of a language into words of the command line", () => {
  const refused = invalid("language", 'Unknown language "ruby"', "any other program runs as argv");
  expect(languageRefusal(refused, "ruby", "One of python")).toMatchObject({
    code: "invalid_argument",
    message: 'Cannot use language "ruby": unknown',
    hint: "One of python",
  });
});

test("languageRefusal() leaves every other error as it is", () => {
  const missing = new CprgError("failed_precondition", "x", { field: "language" });
  for (const error of [invalid("code", "x"), missing, new Error("x"), "x"]) {
    expect(languageRefusal(error, "python", "hint")).toBe(error);
  }
});
