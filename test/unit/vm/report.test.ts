import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { problemOf } from "../../vm/machine.ts";
import { parseJunit, parseReport, type ReportLine } from "../../vm/report.ts";

const JUNIT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="4">
  <testsuite name="test/sandbox/a.test.ts">
      <testcase name="passes &amp; more" classname="group &gt; inner" time="0" file="test/sandbox/a.test.ts" line="3" assertions="1" />
      <testcase name="fails" classname="group" time="0" file="test/sandbox/a.test.ts" line="4" assertions="1">
        <failure type="AssertionError" />
      </testcase>
      <testcase name="skips" classname="" time="0" file="test/sandbox/a.test.ts" line="5" assertions="0">
        <skipped />
      </testcase>
      <testcase name="skips" classname="" time="0" file="test/sandbox/a.test.ts" line="6" assertions="0" />
      <testcase name="(unnamed)" classname="" time="0" file="test/sandbox/a.test.ts" line="7" assertions="0">
        <skipped />
      </testcase>
  </testsuite>
</testsuites>
`;

describe("parseJunit()", () => {
  test("gives every test its id and how it ended; an id that occurs twice gets a number", () => {
    expect(parseJunit(JUNIT)).toEqual([
      { id: "test/sandbox/a.test.ts > group > inner > passes & more", status: "passed" },
      { id: "test/sandbox/a.test.ts > group > fails", status: "failed" },
      { id: "test/sandbox/a.test.ts > skips", status: "skipped" },
      { id: "test/sandbox/a.test.ts > skips #2", status: "passed" },
    ]);
  });

  test("a report that is not whole is none", () => {
    expect(parseJunit(JUNIT.slice(0, -20))).toBeNull();
  });
});

describe("parseReport()", () => {
  test("leaves out a line that is not whole, and what is no line of ours", () => {
    expect(
      parseReport('{"type":"end"}\r\nnoise\n{"type":"start","file":"a"}\n{"type":"fi'),
    ).toEqual([{ type: "end" }, { type: "start", file: "a" }]);
  });
});

describe("problemOf()", () => {
  const start: ReportLine = { type: "start", file: "a.test.ts" };
  const problemAfter = (
    console: string,
    ended: { stopped?: string; lines?: readonly ReportLine[] },
  ) => {
    const directory = mkdtempSync(join(tmpdir(), "cprg-vm-"));
    const consolePath = join(directory, "console.log");
    writeFileSync(consolePath, console);
    const problem = problemOf({ stopped: null, code: 0, lines: [start], consolePath, ...ended });
    rmSync(directory, { recursive: true });
    return problem;
  };

  test("a machine that came to its end has none", () => {
    expect(
      problemAfter("Kernel panic in a test's own output", { lines: [start, { type: "end" }] }),
    ).toBeNull();
  });

  test("names a panic, a silence and an end that came too soon, with what was being done", () => {
    expect(problemAfter("x\r\n[ 1.0] Kernel panic - not syncing: oops\r\n", {})).toBe(
      "Kernel panic - not syncing: oops at a.test.ts",
    );
    expect(problemAfter("", { stopped: "silent for 20 minutes" })).toBe(
      "silent for 20 minutes at a.test.ts",
    );
    expect(problemAfter("", { lines: [] })).toBe("ended with 0 before the first file");
  });
});
