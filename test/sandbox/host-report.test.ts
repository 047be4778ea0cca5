import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { release } from "node:os";
import { hostReport } from "../../src/sandbox/host.ts";
import { requireHost } from "../helpers/host.ts";
import { HAS_CGROUP2 } from "./group-values.ts";
import { ID_RANGE, makeDirs, openTestEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("hostReport()", () => {
  test("says what this host has, and proves it with a program", async () => {
    const dirs = makeDirs();
    const report = await hostReport({
      runDir: dirs.run,
      dataDir: dirs.data,
      mode: "auto",
      idRange: ID_RANGE,
    });
    const uid = process.getuid?.() ?? -1;
    expect(report).toMatchObject({ kernel: release(), uid });
    const { missing: isWithoutGroups } = requireHost({ groups: true });
    // What a user lacks is named, with its fix, and nothing that is needed is missing.
    // v1 alone cannot kill a group as a whole.
    const ofGroups = HAS_CGROUP2 ? [] : ["cgroup.kill"];
    const lacking = [
      ...(uid === 0 ? [] : ["identity"]),
      ...(isWithoutGroups.length === 0 ? ofGroups : ["cgroup"]),
    ];
    expect(report.cgroup === null).toBe(isWithoutGroups.length > 0);
    for (const { name, ok, isRequired, detail, fix } of report.layers) {
      const isLacking = lacking.includes(name);
      expect([name, ok, detail, fix]).toEqual([
        name,
        !isLacking,
        expect.any(String),
        isLacking ? expect.any(String) : null,
      ]);
      if (isLacking) expect([name, isRequired]).toEqual([name, false]);
    }
    const names = report.layers.map(({ name }) => name);
    expect(names).toContain("sandbox");
    expect(new Set(names).size).toBe(names.length);
    rmSync(dirs.top, { recursive: true });
  });

  test("has each layer by the name that status has for it, and lacks those that are missing there", async () => {
    const dirs = makeDirs();
    const options = {
      runDir: dirs.run,
      dataDir: dirs.data,
      mode: "auto",
      idRange: ID_RANGE,
    } as const;
    const report = await hostReport(options);
    const engine = await openTestEngine(dirs);
    const { layers, missing } = engine;
    await engine.close();
    const shown = report.layers.filter(({ name }) => Object.hasOwn(layers, name));
    expect(shown.map(({ name }) => name).sort()).toEqual(Object.keys(layers).sort());
    const lacking = shown.filter(({ ok }) => !ok).map(({ name }) => name);
    expect(lacking.sort()).toEqual([...missing].sort());
    rmSync(dirs.top, { recursive: true });
  });

  test("names what is missing with its fix, and goes on", async () => {
    const dirs = makeDirs();
    const report = await hostReport({
      runDir: dirs.run,
      dataDir: dirs.data,
      mode: "auto",
      idRange: ID_RANGE,
      cgroupParent: "/cprg-no-such-group",
    });
    const layer = (name: string) => report.layers.find((each) => each.name === name);
    expect(report.cgroup).toBeNull();
    expect(layer("cgroup")).toMatchObject({
      ok: false,
      isRequired: true,
      fix: expect.stringContaining("CPRG_CGROUP"),
    });
    expect(layer("sandbox")).toMatchObject({ ok: false });
    expect(layer("identity")).toMatchObject({ ok: process.getuid?.() === 0 });
    rmSync(dirs.top, { recursive: true, force: true });
  });
});
