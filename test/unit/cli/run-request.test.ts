import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { detectLanguage } from "../../../src/cli/run-language.ts";
import { parseMemory, parseRunLimits, parseTimeout } from "../../../src/cli/run-limits.ts";
import {
  gatherRequest,
  INPUT_BYTES_MAX,
  type RunRequestFlags,
} from "../../../src/cli/run-request.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { CODE_BYTES_MAX } from "../../../src/jobs/spec.ts";
import { memoryTerminal } from "./memory-terminal.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-run-"));
  writeFileSync(join(folder, "a.py"), "print(1)\n");
  writeFileSync(join(folder, "noname"), "x");
  writeFileSync(join(folder, "bad.py"), Buffer.from([0xff, 0xfe]));
  writeFileSync(join(folder, "input"), Buffer.from([0, 255]));
  writeFileSync(join(folder, "tool"), "x");
  chmodSync(join(folder, "tool"), 0o700);
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Given {
  flags?: Partial<RunRequestFlags>;
  script?: string;
  rest?: string[];
  stdin?: string;
}

function gather({ flags, script, rest = [], stdin }: Given) {
  const none = { code: undefined, lang: undefined, stdin: undefined, timeout: undefined };
  const empty = { ...none, mem: undefined, file: [], env: [], limit: [], place: [] };
  const terminal = memoryTerminal(stdin === undefined ? {} : { stdin });
  return gatherRequest({ ...empty, ...flags }, { script, rest }, terminal);
}

async function refusal(given: Given): Promise<string> {
  try {
    await gather(given);
  } catch (error) {
    if (CprgError.is(error)) return error.message;
    throw error;
  }
  throw new Error("it was accepted");
}

describe("gatherRequest()", () => {
  test("takes code, a script, a pipe", async () => {
    expect(await gather({ flags: { code: "x" } })).toMatchObject({ language: "python", code: "x" });
    const script = await gather({ script: join(folder, "a.py"), rest: ["-x"] });
    expect(script).toMatchObject({
      language: "python",
      code: "print(1)\n",
      args: ["-x"],
      stdin: null,
    });
    const piped = await gather({ stdin: "#!/bin/bash\necho", script: "-" });
    expect(piped).toMatchObject({ language: "bash" });
    expect(await gather({ stdin: "y" })).toMatchObject({ code: "y" });
  });

  test("takes input, files with their modes, variables and limits", async () => {
    const request = await gather({
      flags: {
        code: "x",
        stdin: join(folder, "input"),
        file: [join(folder, "input"), `${join(folder, "tool")}=bin/t`],
        env: ["A=1=2", "B="],
        limit: ["pids=3"],
        timeout: "500ms",
        mem: "1g",
      },
    });
    expect(request.stdin).toEqual(Buffer.from([0, 255]));
    expect(request.files).toEqual([
      { path: "input", base64: "AP8=", mode: 0o644 },
      { path: "bin/t", base64: "eA==", mode: 0o755 },
    ]);
    expect(request.env).toEqual({ A: "1=2", B: "" });
    expect(request.limits).toEqual({ pids: 3, wall_seconds: 0.5, mem_mb: 1024 });
    const piped = await gather({ flags: { code: "x", stdin: "-" }, stdin: "in" });
    expect(piped.stdin).toEqual(Buffer.from("in"));
  });

  test.each([
    [{}, "no program was given"],
    [{ flags: { code: "x" }, script: "a.py" }, "both a script and --code"],
    [{ script: "/nonexistent.py" }, 'Cannot read "/nonexistent.py": no such file'],
    [{ script: "/etc" }, 'Cannot read "/etc": it is a directory'],
    [{ flags: { code: "x", stdin: "/nonexistent" } }, "no such file"],
    [{ flags: { code: "x", file: ["/nonexistent"] } }, "no such file"],
    [{ flags: { code: "x", env: ["A"] } }, 'Cannot use --env "A"'],
    [{ flags: { code: "x", limit: ["pid=1"] } }, 'Cannot use limit "pid"'],
    [{ flags: { stdin: "-" }, stdin: "x" }, "both the program and its input"],
  ])("refuses %j", async (given, message) => {
    expect(await refusal(given)).toContain(message);
  });

  test("refuses what says no language, no text, and what is too large", async () => {
    expect(await refusal({ script: join(folder, "noname") })).toContain("Cannot tell the language");
    expect(await refusal({ script: join(folder, "bad.py") })).toContain("no UTF-8");
    expect(await refusal({ stdin: "x".repeat(CODE_BYTES_MAX + 1) })).toContain("larger than");
    const zero = { flags: { code: "x", stdin: "/dev/zero" } };
    expect(await refusal(zero)).toContain(`larger than ${INPUT_BYTES_MAX} bytes`);
  });
});

test.each([
  [undefined, "x.py", "", "python"],
  [undefined, "x.PY", "", "python"],
  [undefined, "x.js", "", "javascript"],
  [undefined, "x.ts", "", "typescript"],
  [undefined, "x.sh", "", "bash"],
  [undefined, "x", "#!/usr/bin/env -S FOO=1 python3.11 -u\n", "python"],
  [undefined, "x.py", "#! /bin/sh\n", "bash"],
  [undefined, "x", "#!/usr/bin/node\n", "node"],
  [undefined, "x.py", "#!/usr/bin/ruby\n", "python"],
  [undefined, null, "", "python"],
  ["node", "x.py", "#!/bin/sh\n", "node"],
])("detectLanguage(%p, %p, %p) is %s", (asked, path, code, language) => {
  expect(detectLanguage({ asked, path, code })).toBe(language);
});

test("parseTimeout() and parseMemory() know their units and nothing else", () => {
  expect(["5", "1.5s", "500ms", "2m"].map(parseTimeout)).toEqual([5, 1.5, 0.5, 120]);
  expect(["512", "512m", "2g", "2GiB", "5MB"].map(parseMemory)).toEqual([512, 512, 2048, 2048, 5]);
  for (const text of ["", "-1", "1h", "1e9", "x", "5 5"]) {
    expect(() => parseTimeout(text)).toThrow();
    expect(() => parseMemory(text)).toThrow();
  }
});

test("parseRunLimits() leaves to the rules of jobs what a number may be", () => {
  const flags = { limit: ["cpu_cores=0.5", "pids=-1", "mem_mb=1"], timeout: undefined, mem: "9" };
  expect(parseRunLimits(flags)).toEqual({ cpu_cores: 0.5, pids: -1, mem_mb: 9 });
  expect(() => parseRunLimits({ ...flags, limit: ["pids=x"] })).toThrow("--limit pids");
  expect(() => parseRunLimits({ ...flags, limit: ["pids=1e999"] })).toThrow();
});
