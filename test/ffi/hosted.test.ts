import { afterAll, expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { removeTemporaryDirectories, scratch, temporaryDirectory } from "./native.ts";
import { idInside, map, minimalPlan } from "./sandbox.ts";
import { encodePlan, encodeRequest } from "./wire.ts";

afterAll(removeTemporaryDirectories);

requireHost({ root: true, userns: true, programs: ["gcc"] }).test(
  "the shim launches, talks and reaps under AddressSanitizer and UBSan",
  () => {
    const out = temporaryDirectory();
    const folder = join(import.meta.dir, "../../ffi");
    const made = Bun.spawnSync(["make", "-C", folder, `OUT=${out}`, "CC=gcc", "sanitize"], {
      stderr: "pipe",
    });
    expect(made.exitCode, `${made.stdout}${made.stderr}`).toBe(0);
    const plan = { ...minimalPlan, scratch: scratch(), idProgram: idInside, idMap: map.parent };
    const argv = ["/bin/sh", "-c", "exit 3"];
    writeFileSync(join(out, "plan"), encodePlan(plan));
    writeFileSync(
      join(out, "request"),
      encodeRequest({ type: "exec", id: 1, argv, path: "/workspace", nullStdin: true }),
    );
    const files = ["hosted-server", "cprg-init", "plan", "request"].map((name) => join(out, name));
    const ran = Bun.spawnSync(files, { stdout: "pipe", stderr: "pipe" });
    // A note that the child left a stack of its own without returning may be there.
    expect(ran.stderr.toString()).not.toMatch(/ERROR|runtime error/);
    expect(ran.exitCode, `${ran.stderr}`).toBe(0);
    expect(ran.stdout.toString()).toBe("ended with 0\n");
  },
  300_000,
);
