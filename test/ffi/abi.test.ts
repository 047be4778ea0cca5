import { ptr } from "bun:ffi";
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { native } from "./native.ts";

const folder = join(import.meta.dir, "../../ffi");
const header = readFileSync(join(folder, "cprg.h"), "utf8");

/** sizeof as the header asserts it. */
function assertedSize(structure: string): number {
  const match = new RegExp(`sizeof\\(struct ${structure}\\) == (\\d+)`).exec(header);
  return Number(match?.[1]);
}

describe("cprg_abi()", () => {
  test("answers the sizes that the header asserts", () => {
    const answer = new Uint32Array(13);
    expect(native.cprg_abi(ptr(answer))).toBe(0);
    const structures = [
      "cprg_error",
      "cprg_launch",
      "cprg_launched",
      "cprg_launch_job",
      "cprg_wait",
      "cprg_statfs",
      "cprg_request",
      "cprg_plan",
      "cprg_plan_step",
      "cprg_rlimit",
      "cprg_report",
      "cprg_entry",
    ];
    expect([...answer]).toEqual([4, ...structures.map(assertedSize)]);
    expect(assertedSize("cprg_abi")).toBe(answer.byteLength);
  });
});

requireHost({ linux: true, programs: ["clang-14", "ld.lld-14", "readelf"] }).test(
  "make check builds both machines without libc, interpreter or executable stack",
  () => {
    const made = Bun.spawnSync(["make", "-C", folder, "check"], { stderr: "pipe" });
    expect(made.stderr.toString()).toBe("");
    expect(made.exitCode).toBe(0);
    expect(made.stdout.toString()).toContain("check: both machines build as they should");
  },
  300_000,
);
