// The suite of `cprg doctor --attack` on the real kernel, one test for each attack; and its twins: a
// sandbox that is weakened in one place is found out by the attack that is for it.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, rmSync } from "node:fs";
import { type AttackResult, layerResults, runAttacks } from "../../src/attack/run-attacks.ts";
import { STAGE_PREFIX } from "../../src/attack/stage.ts";
import { ATTACKS } from "../../src/attack/suite.ts";
import type { ExecLease } from "../../src/provider/contract.ts";
import type { EngineOptions, LocalEngine } from "../../src/sandbox/engine.ts";
import { parseSeccompPolicy } from "../../src/sandbox/seccomp/policy.ts";
import { requireHost } from "../helpers/host.ts";
import { SLOWNESS } from "./pace.ts";
import { makeDirs, openTestEngine, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

async function attack(engine: LocalEngine, ...ids: string[]): Promise<readonly AttackResult[]> {
  const attacks = ATTACKS.filter(({ id }) => ids.includes(id));
  expect(attacks.map(({ id }) => id).sort()).toEqual([...ids].sort());
  return await runAttacks({ engine, attacks, patience: SLOWNESS });
}

/** What an attack comes to where all hold that are in force: one on another layer is not tried. */
function expected(engine: LocalEngine, id: string): "pass" | "missing" {
  const needs: readonly string[] = ATTACKS.find((attack) => attack.id === id)?.needs ?? [];
  return needs.some((layer) => engine.missing.includes(layer)) ? "missing" : "pass";
}

/** States by id, to compare in one go. */
function states(results: readonly AttackResult[]): Record<string, string> {
  return Object.fromEntries(results.map(({ id, state }) => [id, state]));
}

host.describe("an engine as it is", () => {
  const bench = useEngine();
  test.each(ATTACKS.map(({ id }) => id))("%s", async (id) => {
    const [result] = await attack(bench.engine, id);
    expect([result?.state, result?.seen]).toEqual([expected(bench.engine, id), expect.any(String)]);
  });

  test("nothing that was put up for attacks is left", () => {
    for (const place of ["/tmp", "/var/tmp", "/run", "/dev/shm", "/opt", "/srv"]) {
      expect(readdirSync(place).filter((name) => name.startsWith(STAGE_PREFIX))).toEqual([]);
    }
  });

  test("a host that stops them is told so", async () => {
    const stop = AbortSignal.abort();
    const { engine } = bench;
    expect(await runAttacks({ engine, attacks: ATTACKS, signal: stop })).toEqual([]);
  });
});

/** An engine of options, for as long as a test. */
function useOptions(options: Partial<EngineOptions>): () => LocalEngine {
  const dirs = makeDirs();
  let engine: LocalEngine | undefined;
  beforeAll(async () => {
    engine = await openTestEngine(dirs, options);
  });
  afterAll(async () => {
    await engine?.close();
    rmSync(dirs.top, { recursive: true, force: true });
  });
  return () => {
    if (engine === undefined) throw new Error("the engine is not open yet");
    return engine;
  };
}

host.describe("an engine without its filter", () => {
  const engine = useOptions({ seccomp: { isOn: false, allow: [] } });
  test("has seccomp missing, not passed, and holds the other layers", async () => {
    const seccomp = ATTACKS.filter(({ layer }) => layer === "seccomp").map(({ id }) => id);
    const results = await attack(engine(), ...seccomp, "root.reach", "identity.become");
    expect(layerResults(results)).toEqual([
      { layer: "root", state: "pass", counts: { pass: 1, fail: 0, missing: 0 } },
      { layer: "identity", state: "pass", counts: { pass: 1, fail: 0, missing: 0 } },
      { layer: "seccomp", state: "missing", counts: { pass: 0, fail: 0, missing: seccomp.length } },
    ]);
  });
});

host.describe("an engine whose operator allows what is unsafe", () => {
  const allow = "ptrace,keyctl,ioctl";
  const seccomp = parseSeccompPolicy({ allow, unsafe: true, production: false });
  const engine = useOptions({ seccomp });
  test("fails the attacks by these calls alone", async () => {
    const ids = ["seccomp.ptrace", "seccomp.keyctl", "seccomp.tiocsti", "seccomp.bpf"];
    expect(states(await attack(engine(), ...ids))).toEqual({
      "seccomp.ptrace": "fail",
      "seccomp.keyctl": "fail",
      "seccomp.tiocsti": "fail",
      "seccomp.bpf": "pass",
    });
  });
});

host.describe("an engine that binds a directory of canaries", () => {
  const engine = useOptions({ binds: [{ source: "/var/tmp", target: "/mnt/var" }] });
  test("fails the walk", async () => {
    expect(states(await attack(engine(), "root.walk"))).toEqual({ "root.walk": "fail" });
  });
});

test("where the sandbox is off nothing hostile runs", async () => {
  const dirs = makeDirs();
  await using off = {
    engine: await openTestEngine(dirs, { mode: "off" }),
    async [Symbol.asyncDispose]() {
      await this.engine.close();
      rmSync(dirs.top, { recursive: true, force: true });
    },
  };
  const results = await runAttacks({ engine: off.engine, attacks: ATTACKS });
  expect(new Set(results.map(({ state }) => state))).toEqual(new Set(["missing"]));
  expect(results).toHaveLength(ATTACKS.length);
});

/** An object whose methods of these names are others. */
function override<T extends object>(object: T, others: Partial<T>): T {
  return new Proxy(object, {
    get: (target, name) => {
      if (Object.hasOwn(others, name)) return others[name as keyof T];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** The engine with leases that are weaker in one place. */
function withLeases(engine: LocalEngine, weaken: (lease: ExecLease) => ExecLease): LocalEngine {
  return override(engine, { open: async (...args) => weaken(await engine.open(...args)) });
}

host.describe("an engine that is broken", () => {
  const bench = useEngine();

  test("and takes other limits than the request's fails", async () => {
    const { engine } = bench;
    const other = { cpu_cores: 0.5, open_files: 200 };
    const loose = override(engine, {
      reserve: (limits, options) => engine.reserve({ ...limits, ...other }, options),
    });
    const ids = ["cgroup.values", "rlimits.set", "limits.descriptors", "cgroup.members"];
    expect(states(await attack(loose, ...ids))).toEqual({
      "cgroup.values": expected(engine, "cgroup.values") === "pass" ? "fail" : "missing",
      "rlimits.set": "fail",
      "limits.descriptors": "fail",
      "cgroup.members": expected(engine, "cgroup.members"),
    });
  });

  test("and passes a variable on fails", async () => {
    const leaky = withLeases(bench.engine, (lease) =>
      override(lease, {
        exec: (spec) => lease.exec({ ...spec, variables: { ...spec.variables, SECRET: "x" } }),
      }),
    );
    const ids = ["environment.variables", "environment.signals"];
    expect(states(await attack(leaky, ...ids))).toEqual({
      "environment.variables": "fail",
      "environment.signals": "pass",
    });
  });

  test("and reports the end before everything is dead fails", async () => {
    const hasty = withLeases(bench.engine, (lease) =>
      override(lease, {
        exec: async (spec) => {
          const exec = await lease.exec(spec);
          const wrong = {
            exitCode: 0,
            signal: null,
            reason: "user",
            limitsHit: [],
            violations: [],
            usage: null,
            durationMs: 1,
            killed: 0,
          } as const;
          let end: (outcome: typeof wrong) => void = () => undefined;
          const outcome = new Promise<typeof wrong>((resolve) => {
            end = resolve;
          });
          return override(exec, {
            outcome,
            kill: (...args) => {
              end(wrong);
              // Whoever waited for the end looks before this.
              void outcome.then(() => exec.kill(...args));
            },
          });
        },
      }),
    );
    const [result] = await attack(hasty, "termination.children");
    expect(result).toMatchObject({ state: "fail", seen: expect.stringContaining("lived when") });
  });

  test("and leaves its sandboxes open fails", async () => {
    const kept: ExecLease[] = [];
    const slow = withLeases(bench.engine, (lease) => {
      kept.push(lease);
      return override(lease, { release: async () => undefined });
    });
    const [result] = await attack(slow, "termination.busy");
    expect(result).toMatchObject({ state: "fail", seen: expect.stringContaining("lived when") });
    await Promise.all(kept.map((lease) => lease.release()));
  });
});
