import { expect, test } from "bun:test";
import type { AttackResult } from "../../../src/attack/run-attacks.ts";
import { attackLines, summary } from "../../../src/cli/attack-host.ts";
import { paintFor } from "../../../src/cli/output.ts";
import { memoryTerminal } from "./memory-terminal.ts";

const paint = paintFor(memoryTerminal().stdout, {});
const result: AttackResult = {
  id: "root.walk",
  layer: "root",
  title: "read everything",
  state: "pass",
  seen: "nothing",
  durationMs: 1500,
};

test("attackLines() shows what was tried and seen, and lets no program drive the terminal", () => {
  const hostile = { ...result, state: "fail", seen: "found \x1b[2J\n/x" } as const;
  expect(attackLines(hostile, paint)).toBe(
    "  fail     read everything\n           found \\x1b[2J\\x0a/x\n",
  );
});

test("summary() judges each layer by its worst attack, and says when it is not whole", () => {
  const results: readonly AttackResult[] = [
    result,
    { ...result, state: "missing" },
    { ...result, layer: "seccomp", state: "fail" },
    { ...result, layer: "seccomp", state: "missing" },
    { ...result, layer: "limits" },
  ];
  expect(summary(results, { paint, isInterrupted: true })).toBe(`
STATE    LAYER    ATTACKS
missing  root     1 held, 1 not tried
fail     seccomp  1 broken, 1 not tried
pass     limits   1 held

2 held, 1 broken, 2 not tried, in 7.5 s
Interrupted: not everything was tried
`);
});
