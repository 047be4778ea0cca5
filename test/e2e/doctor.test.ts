// `cprg doctor` of the compiled binary on this host.

import { expect } from "bun:test";
import { readdirSync } from "node:fs";
import { requireHost } from "../helpers/host.ts";
import { call, makeHome, readText, start } from "./cprg.ts";

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

interface Attacked {
  readonly ok: boolean;
  readonly mode: string;
  readonly layers: readonly { layer: string; state: string; pass: number; fail: number }[];
  readonly attacks: readonly { id: string; state: string; seen: string; duration_ms: number }[];
}

test("doctor --attack attacks from the executable alone, and says what was tried and seen", async () => {
  using home = makeHome();
  const layers = ["descriptors", "environment"];
  const words = ["doctor", "--attack", ...layers.flatMap((layer) => ["--layer", layer])];
  const text = await call(words, home);
  expect(text).toMatchObject({ code: 0, err: "" });
  for (const layer of layers) expect(text.out).toMatch(new RegExp(`^pass +${layer} +3 held$`, "m"));
  expect(text.out).toContain("find a variable of the server's\n");
  expect(text.out).toMatch(/^6 held, 0 broken, 0 not tried, in /m);
  const json = await call([...words, "--json"], home);
  const report = JSON.parse(json.out) as Attacked;
  expect(report).toMatchObject({ ok: true, mode: "ns" });
  expect(report.attacks.map(({ state }) => state)).toEqual(Array(6).fill("pass"));
  expect(report.layers.map(({ layer, pass }) => [layer, pass])).toEqual([
    ["descriptors", 3],
    ["environment", 3],
  ]);
});

test("doctor --attack ends with 1 where a layer is missing or an attack gets through", async () => {
  using home = makeHome();
  const off = await call(["doctor", "--attack", "--layer", "seccomp", "--seccomp", "off"], home);
  expect(off.code).toBe(1);
  expect(off.out).toMatch(/^missing +seccomp +\d+ not tried$/m);
  const allowed = ["--seccomp-unsafe", "--seccomp-allow", "clone3"];
  const words = ["doctor", "--attack", "--layer", "seccomp", "--json", ...allowed];
  const through = await call(words, home);
  const { ok, attacks } = JSON.parse(through.out) as Attacked;
  expect([through.code, ok]).toEqual([1, false]);
  expect(attacks.filter(({ state }) => state === "fail").map(({ id }) => id)).toEqual([
    "seccomp.clone3",
  ]);
}, 180_000);

test("doctor --attack that is interrupted leaves nothing of what it put up", async () => {
  using home = makeHome();
  await using running = start(["doctor", "--attack"], home);
  const output = readText(running.stdout);
  await output.until(/pass/);
  expect(planted().length).toBeGreaterThan(0);
  running.kill("SIGINT");
  expect(await output.rest()).toContain("Interrupted: not everything was tried");
  expect(await running.exited).toBe(1);
  expect(planted()).toEqual([]);
});

/** What attacks put up on the host. */
function planted(): string[] {
  return ["/tmp", "/var/tmp", "/run", "/dev/shm", "/opt", "/srv"].flatMap((place) =>
    readdirSync(place).filter((name) => name.startsWith("cprg-attack-")),
  );
}

test("doctor refuses a layer that it does not know, and --layer without --attack", async () => {
  const unknown = await call(["doctor", "--attack", "--layer", "secomp"]);
  expect(unknown).toMatchObject({ code: 2, out: "" });
  expect(unknown.err).toContain('Did you mean "seccomp"?');
  expect(await call(["doctor", "--layer", "seccomp"])).toMatchObject({ code: 2, out: "" });
});
