// `cprg doctor` of the compiled binary on this host.

import { expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { call, makeHome } from "./cprg.ts";

const { test } = requireHost({ root: true, cgroup: true });

interface Report {
  readonly ok: boolean;
  readonly uid: number;
  readonly layers: readonly { name: string; ok: boolean; required: boolean; fix: string | null }[];
}

test("doctor shows the layers of this host, and that a program ran in a sandbox", async () => {
  using home = makeHome();
  const table = await call(["doctor"], home);
  expect(table).toMatchObject({ code: 0, err: "" });
  expect(table.out).toMatch(/^ok +sandbox +ran a program in mode ns$/m);
  const json = await call(["doctor", "--json"], home);
  const report = JSON.parse(json.out) as Report;
  expect(report).toMatchObject({ ok: true, uid: 0 });
  for (const { name, ok } of report.layers) {
    expect(table.out).toMatch(new RegExp(`^${ok ? "ok" : "weaker"} +${RegExp.escape(name)} `, "m"));
  }
});

test("doctor ends with 1 where something is missing, and says how to mend it", async () => {
  using home = makeHome();
  const words = ["doctor", "--run-dir", "/proc/nowhere"];
  const table = await call(words, home);
  expect(table.code).toBe(1);
  expect(table.out).toMatch(/^missing +sandbox /m);
  expect(table.out).toMatch(/To mend it:\n {2}sandbox: /);
  const report = JSON.parse((await call([...words, "--json"], home)).out) as Report;
  const sandbox = report.layers.find(({ name }) => name === "sandbox");
  expect(report.ok).toBe(false);
  expect(sandbox?.fix?.length).toBeGreaterThan(0);
});
