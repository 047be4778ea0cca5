import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { release } from "node:os";
import { hostReport } from "../../src/sandbox/host.ts";
import { requireHost } from "../helpers/host.ts";
import { ID_RANGE, makeDirs } from "./test-engine.ts";

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
    expect(report).toMatchObject({ kernel: release(), uid: 0 });
    expect(report.cgroup).not.toBeNull();
    for (const { name, ok, detail, fix } of report.layers) {
      expect([name, ok, detail, fix]).toEqual([name, true, expect.any(String), null]);
    }
    const names = report.layers.map(({ name }) => name);
    expect(names).toContain("sandbox");
    expect(new Set(names).size).toBe(names.length);
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
    expect(layer("identity")).toMatchObject({ ok: true });
    rmSync(dirs.top, { recursive: true, force: true });
  });
});
