import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as layout from "../../src/sandbox/layout.ts";
import { STEPS } from "../../src/sandbox/steps.ts";
import { requireHost } from "../helpers/host.ts";

const host = requireHost({ linux: true });
const FFI = join(import.meta.dir, "../../ffi");

/** Values of C expressions, by compiling them against the header. */
function evaluate(expressions: readonly string[]): number[] {
  const directory = mkdtempSync(join(tmpdir(), "cprg-layout-"));
  try {
    const source = [
      "#include <stddef.h>",
      "#include <stdio.h>",
      "#include <linux/sched.h>",
      "#include <sys/resource.h>",
      `#include "${join(FFI, "cprg.h")}"`,
      "int main(void) {",
      ...expressions.map((expression) => `  printf("%lld\\n", (long long)(${expression}));`),
      "}",
    ];
    writeFileSync(join(directory, "probe.c"), source.join("\n"));
    const built = Bun.spawnSync(["cc", "-o", join(directory, "probe"), join(directory, "probe.c")]);
    expect(built.stderr.toString()).toBe("");
    const ran = Bun.spawnSync([join(directory, "probe")]);
    return ran.stdout.toString().trim().split("\n").map(Number);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** `cgroupDirFd` as the header has it: `cgroup_dir_fd`. */
const snake = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const offsets = (struct: string, fields: Readonly<Record<string, number>>) =>
  Object.entries(fields).map(
    ([name, value]) => [`offsetof(struct ${struct}, ${snake(name)})`, value] as const,
  );
const constants = (prefix: string, values: Readonly<Record<string, number>>) =>
  Object.entries(values).map(
    ([name, value]) => [`${prefix}${snake(name).toUpperCase()}`, value] as const,
  );

const EXPECTED: readonly (readonly [string, number])[] = [
  ["CPRG_ABI", layout.ABI],
  ["CPRG_ENTRY_MAGIC", layout.ENTRY_MAGIC],
  ...Object.entries(layout.SIZES).map(
    ([name, size]) => [`sizeof(struct cprg_${snake(name)})`, size] as const,
  ),
  ...offsets("cprg_launch", layout.LAUNCH),
  ...offsets("cprg_launch_job", layout.LAUNCH_JOB),
  ...offsets("cprg_plan", layout.PLAN),
  ...offsets("cprg_plan_step", layout.PLAN_STEP),
  ...offsets("cprg_request", layout.REQUEST_AT),
  ...offsets("cprg_rlimit", layout.RLIMIT_AT),
  ...offsets("cprg_entry", layout.ENTRY_AT),
  ...constants("CPRG_MAP_", layout.MAP),
  ...constants("CPRG_OP_", layout.OP),
  ...constants("CPRG_BIND_", layout.BIND),
  ...constants("CPRG_REQUEST_", layout.REQUEST),
  ...constants("CPRG_FLAG_", layout.FLAG),
  ...constants("CPRG_FILTER_", layout.FILTER),
  ...constants("CPRG_REPORT_", layout.REPORT),
  ...constants("CPRG_ENTRY_", layout.ENTRY),
  ["CPRG_CGROUPS_MAX", layout.BOUNDS.cgroups],
  ["CPRG_REQUEST_MAX", layout.BOUNDS.requestBytes],
  ["CPRG_REQUEST_FDS_MAX", layout.BOUNDS.requestFds],
  ["CPRG_PLAN_MAX", layout.BOUNDS.planSteps],
  ["CPRG_ARGS_MAX", layout.BOUNDS.args],
  ["CPRG_RLIMITS_MAX", layout.BOUNDS.rlimits],
  ["CPRG_FILTER_MAX", layout.BOUNDS.filterBytes],
  ["CPRG_EXECS_MAX", layout.BOUNDS.execs],
  ["CPRG_PATH_MAX", layout.BOUNDS.pathBytes],
  ["CPRG_ENTRIES_MAX", layout.BOUNDS.entries],
  ["CPRG_DEPTH_MAX", layout.BOUNDS.depth],
  ["CLONE_NEWNS", layout.CLONE.newNs],
  ["CLONE_NEWCGROUP", layout.CLONE.newCgroup],
  ["CLONE_NEWUTS", layout.CLONE.newUts],
  ["CLONE_NEWIPC", layout.CLONE.newIpc],
  ["CLONE_NEWNET", layout.CLONE.newNet],
  ...Object.entries(layout.RLIMIT).map(
    ([name, value]) => [`RLIMIT_${name.toUpperCase()}`, value] as const,
  ),
];

host.test("layout.ts has the numbers of ffi/cprg.h", () => {
  const actual = evaluate(EXPECTED.map(([expression]) => expression));
  expect(EXPECTED.map(([expression], index) => [expression, actual[index]])).toEqual(
    EXPECTED.map((pair) => [...pair]),
  );
});

host.test("decodeReport() reads a report where the header says", () => {
  const fields =
    "type id step index err code signal pid user_us system_us max_rss_bytes at_ns entries bytes";
  const names = fields.split(" ");
  const places = evaluate([
    ...names.map((name) => `offsetof(struct cprg_report, ${name})`),
    ...names.map((name) => `sizeof(((struct cprg_report *)0)->${name})`),
  ]);
  const bytes = new DataView(new ArrayBuffer(layout.SIZES.report + 8));
  names.forEach((_, index) => {
    const at = 8 + (places[index] ?? 0);
    if (places[index + names.length] === 8) bytes.setBigUint64(at, BigInt(index + 1), true);
    else bytes.setUint32(at, index + 1, true);
  });
  const { errno, userUs, systemUs, maxRssBytes, atNs, ...rest } = layout.decodeReport(bytes, 8);
  const values = { ...rest, err: errno, user_us: userUs, system_us: systemUs };
  expect({ ...values, max_rss_bytes: maxRssBytes, at_ns: Number(atNs) }).toEqual(
    Object.fromEntries(names.map((name, index) => [name, index + 1])) as never,
  );
});

test("steps.ts names every step of ffi/cprg.h and no other", () => {
  const header = readFileSync(join(FFI, "cprg.h"), "utf8");
  const steps = [...header.matchAll(/CPRG_STEP_([A-Z0-9_]+) = (\d+)/g)].map(
    ([, name = "", value]) => [Number(value), name.toLowerCase()] as const,
  );
  expect(steps.length).toBeGreaterThan(30);
  expect(Object.entries(STEPS).map(([value, { name }]) => [Number(value), name])).toEqual(
    steps.map((pair) => [...pair]),
  );
  for (const { fix } of Object.values(STEPS)) expect(fix.length).toBeGreaterThan(20);
});

test("a message keeps strings whole and refuses what it cannot hold", () => {
  const message = new layout.MessageBuilder(8);
  const at = message.text("ü");
  expect(at).toBe(8);
  expect(message.reserve(4, 4)).toBe(12);
  expect([...message.finish()]).toEqual([8, 0, 0, 0, 0, 0, 0, 0, 0xc3, 0xbc, 0, 0, 0, 0, 0, 0]);
  expect(() => message.text("a\0b")).toThrow(/NUL/);
  expect(() => message.reserve(layout.BOUNDS.requestBytes)).toThrow(/196608/);
});
