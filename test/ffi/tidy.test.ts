import { expect } from "bun:test";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";

requireHost({ linux: true, programs: ["clang-tidy-14"] }).test(
  "clang-tidy has nothing to say about ffi/, for either machine",
  () => {
    const folder = join(import.meta.dir, "../../ffi");
    const made = Bun.spawnSync(["make", "-j2", "-C", folder, "tidy"], { stderr: "pipe" });
    expect(`${made.stdout}${made.stderr}`).toContain("tidy: no finding");
    expect(made.exitCode).toBe(0);
  },
  300_000,
);
