// spin searches every order of events of the models: none breaks a rule, and with a fault put in one
// does.

import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";

const host = requireHost({ programs: ["spin", "clang-14"] });
const scratch = mkdtempSync(join(tmpdir(), "cprg-model-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

interface Verdict {
  /** Orders of events that break a rule; the search stops at the first. */
  readonly errors: number;
  readonly states: number;
  readonly report: string;
}

function run(command: string[], cwd: string): string {
  const { success, stdout, stderr } = Bun.spawnSync(command, { cwd, timeout: 120_000 });
  const output = `${stdout}${stderr}`;
  if (!success) throw new Error(`${command.join(" ")}: ${output}`);
  return output;
}

function search(model: string, fault?: string): Verdict {
  const folder = join(scratch, `${model}-${fault ?? "none"}`);
  mkdirSync(folder);
  const define = fault === undefined ? [] : [`-D${fault}`];
  run(["spin", ...define, "-a", join(import.meta.dir, `${model}.pml`)], folder);
  run(["clang-14", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], folder);
  const report = run(["./pan", "-m100000"], folder);
  return {
    errors: Number(/errors: (\d+)/.exec(report)?.[1]),
    states: Number(/(\d+) states, stored/.exec(report)?.[1]),
    report,
  };
}

describe("the mux", () => {
  host.test("keeps its rules in every order of events", () => {
    const { errors, states, report } = search("mux");
    expect(report).not.toContain("max search depth too small");
    expect(errors).toBe(0);
    expect(states).toBeGreaterThan(1000);
  });

  for (const fault of [
    "CLOSED_CALL",
    "LEFT_END",
    "LOST_ABORT",
    "TWO_ENDS",
    "EARLY_CANCEL",
    "NO_GRANT",
  ]) {
    host.test(`breaks one with ${fault}`, () => {
      expect(search("mux", fault).errors).toBe(1);
    });
  }
});

test("every fault that the model knows is tried", async () => {
  const text = await Bun.file(join(import.meta.dir, "mux.pml")).text();
  const faults = new Set([...text.matchAll(/^#ifn?def (\w+)/gm)].map(([, name]) => name));
  expect([...faults].sort()).toEqual(
    ["CLOSED_CALL", "EARLY_CANCEL", "LEFT_END", "LOST_ABORT", "NO_GRANT", "TWO_ENDS"].sort(),
  );
});
