import { describe, expect, test } from "bun:test";
import { CEILING_LIMITS, DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { checkCodeFile } from "../../../src/jobs/file-rules.ts";
import { jobSpec } from "../../../src/jobs/spec.ts";

describe("jobSpec()", () => {
  test("fills in defaults", () => {
    expect(jobSpec({ language: "python", code: "1" })).toEqual({
      language: "python",
      code: "1",
      args: [],
      stdinBase64: null,
      files: [],
      env: {},
      limits: DEFAULT_LIMITS,
      labels: {},
      placement: null,
      killGraceSeconds: 2,
    });
  });

  test("keeps an empty standard input apart from none", () => {
    expect(jobSpec({ language: "python", code: "1", stdin: "" }).stdinBase64).toBe("");
    expect(jobSpec({ language: "python", code: "1", stdinBase64: "" }).stdinBase64).toBe("");
  });

  test("takes odd but harmless names, paths and bytes as they are", () => {
    const paths = ["a b", "-rf", "...", "a\\b", "$(id)", "new\nline", "é/😀", "a/.hidden", "..a"];
    const files = paths.map((path) => ({ path, base64: "AP8=" }));
    const spec = jobSpec({ argv: ["./a b", "", "--", "\n"], files, env: { _: "", A1: "a=b\n" } });
    expect(spec).toMatchObject({ language: "argv", code: null, args: ["./a b", "", "--", "\n"] });
    expect(spec.files.map(({ path }) => path)).toEqual(paths);
    expect(spec.env).toEqual({ _: "", A1: "a=b\n" });
  });

  test("takes megabytes of base64, and refuses one wrong character in them", () => {
    const base64 = Buffer.alloc(10_000_000, "é").toString("base64");
    const spec = (text: string) =>
      jobSpec({ language: "python", code: "1", files: [{ path: "a", base64: text }] });
    expect(spec(base64).files[0]?.base64.length).toBe(base64.length);
    for (const wrong of [`${base64.slice(0, -4)}!AAA`, `!${base64.slice(1)}`, base64.slice(1)]) {
      expect(() => spec(wrong)).toThrow("it is not base64");
    }
  });

  test("clamps limits to the ceilings that it is given", () => {
    const ceilings = { ...CEILING_LIMITS, wall_seconds: 5 };
    const spec = jobSpec({ language: "python", code: "1", limits: { wall_seconds: 60 } }, ceilings);
    expect(spec.limits.wall_seconds).toBe(5);
  });

  test("counts arguments and environment together, in bytes", () => {
    const half = 64 * 1024;
    const fits = { argv: ["a"], env: { A: "x".repeat(128 * 1024 - 5) } };
    expect(() => jobSpec(fits)).not.toThrow();
    const over = { argv: ["a", "x".repeat(half)], env: { A: "x".repeat(half) } };
    expect(() => jobSpec(over)).toThrow("together");
    expect(() => jobSpec({ argv: ["é".repeat(half)] })).toThrow("together");
  });
});

describe("checkCodeFile()", () => {
  test("refuses only the code's own place", () => {
    const file = (path: string) => [{ path, base64: "", mode: 0o644 }];
    for (const path of ["main.py", "main.py/x"]) {
      expect(() => checkCodeFile(file(path), "main.py")).toThrow("where the code goes");
    }
    for (const path of ["main.pyc", "lib/main.py", "Main.py"]) {
      expect(() => checkCodeFile(file(path), "main.py")).not.toThrow();
    }
  });
});
