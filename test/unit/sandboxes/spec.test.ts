import { describe, expect, test } from "bun:test";
import { CEILING_LIMITS, DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { IDLE_SECONDS, LIFETIME_SECONDS } from "../../../src/sandboxes/bounds.ts";
import { type ExecRequest, execPlan, sandboxSpec } from "../../../src/sandboxes/spec.ts";

const frame = {
  limits: DEFAULT_LIMITS,
  env: { A: "sandbox", B: "sandbox" },
  lifetimeSeconds: 3600,
  ceilings: CEILING_LIMITS,
};
const plan = (request: Partial<ExecRequest>) => execPlan({ argv: ["x"], ...request }, frame);

describe("sandboxSpec()", () => {
  test("fills in defaults, keeps what was asked for, and lowers what is above a ceiling", () => {
    expect(sandboxSpec({}, CEILING_LIMITS)).toEqual({
      limits: DEFAULT_LIMITS,
      labels: {},
      placement: null,
      askedLimits: [],
      env: {},
      idleSeconds: IDLE_SECONDS.default,
      lifetimeSeconds: LIFETIME_SECONDS.default,
    });
    const asked = { idleSeconds: 1.25, lifetimeSeconds: 1e12 };
    expect(sandboxSpec(asked, CEILING_LIMITS)).toMatchObject({
      idleSeconds: 1.25,
      lifetimeSeconds: LIFETIME_SECONDS.ceiling,
    });
  });

  test.each([0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])("refuses a time of %d", (time) => {
    expect(() => sandboxSpec({ idleSeconds: time }, CEILING_LIMITS)).toThrow("idle_seconds");
  });
});

describe("execPlan()", () => {
  test("takes variables and limits of the sandbox where the exec has none", () => {
    expect(plan({ env: { B: "exec" }, limits: { wall_seconds: 1e6 } })).toMatchObject({
      env: { A: "sandbox", B: "exec" },
      stdin: null,
      terminal: null,
      limits: { ...DEFAULT_LIMITS, wall_seconds: CEILING_LIMITS.wall_seconds },
    });
  });

  test("a terminal lasts as long as its sandbox, unless it is told otherwise", () => {
    expect(plan({ terminal: {} })).toMatchObject({
      terminal: { columns: 80, rows: 24 },
      env: { TERM: "xterm-256color" },
      limits: {
        wall_seconds: 3600,
        cpu_seconds: 3600,
        output_kb: CEILING_LIMITS.output_kb,
        mem_mb: DEFAULT_LIMITS.mem_mb,
      },
    });
    const asked = { terminal: {}, env: { TERM: "dumb" }, limits: { wall_seconds: 5 } };
    expect(plan(asked)).toMatchObject({ env: { TERM: "dumb" }, limits: { wall_seconds: 5 } });
  });

  test("refuses what cannot be meant, naming the field", () => {
    const wrong: [Partial<ExecRequest>, string][] = [
      [{ argv: [] }, "argv"],
      [{ argv: [""] }, "argv[0]"],
      [{ argv: ["a\0b"] }, "argv[0]"],
      [{ directory: "relative" }, "directory"],
      [{ limits: { mem_mb: 1 } }, "limits.mem_mb"],
      [{ limits: { wall_seconds: 0 } }, "limits.wall_seconds"],
      [{ limits: [] }, "limits"],
      [{ stdin: "x", isInputOpen: true }, "stdin_open"],
      [{ stdin: "x", terminal: {} }, "stdin"],
      [{ terminal: { columns: 0 } }, "columns"],
      [{ terminal: { rows: 65_536 } }, "rows"],
      [{ killGraceSeconds: 31 }, "kill_grace_seconds"],
    ];
    for (const [request, field] of wrong) {
      expect(() => plan(request)).toThrow(expect.objectContaining({ field }));
    }
  });
});
