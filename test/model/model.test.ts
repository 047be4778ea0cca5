// spin searches every order of events of the models: none breaks a rule, and with a fault put in one
// does.

import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
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
  const folder = mkdtempSync(join(scratch, `${model}-`));
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

const MODELS = {
  mux: {
    title: "the mux",
    statesMin: 1000,
    faults: ["CLOSED_CALL", "LEFT_END", "LOST_ABORT", "TWO_ENDS", "EARLY_CANCEL", "NO_GRANT"],
  },
  claims: {
    title: "the life of a claim",
    statesMin: 10_000,
    faults: ["CANCEL_RUNS", "DOUBLE_CLAIM", "STALE_CLAIM", "CLOSED_CALL"],
  },
};

for (const [model, { title, statesMin, faults }] of Object.entries(MODELS)) {
  describe(title, () => {
    host.test("keeps its rules in every order of events", () => {
      const { errors, states, report } = search(model);
      expect(report).not.toContain("max search depth too small");
      expect(errors).toBe(0);
      expect(states).toBeGreaterThan(statesMin);
    });

    for (const fault of faults) {
      host.test(`breaks one with ${fault}`, () => {
        expect(search(model, fault).errors).toBe(1);
      });
    }

    test("every fault that the model knows is tried", async () => {
      const text = await Bun.file(join(import.meta.dir, `${model}.pml`)).text();
      const known = new Set([...text.matchAll(/^#ifn?def (\w+)/gm)].map(([, name]) => name ?? ""));
      expect([...known].sort()).toEqual([...faults].sort());
    });
  });
}

host.test("no statement of the life of a claim is left out", () => {
  const { report } = search("claims");
  const unreached = [...report.matchAll(/^unreached in .*\n((?:\t.*\n)+)/gm)].map(
    ([, list]) => list,
  );
  expect(unreached.length).toBe(5);
  for (const list of unreached) expect(list).toMatch(/^\t\(0 of \d+ states\)\n$/);
});
