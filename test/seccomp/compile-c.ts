/** Builds the C programs of this suite with the host's compiler. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type HostGate, requireHost } from "../helpers/host.ts";

/** Gates tests that compile C on Linux; a header that is missing is the reason of the skip. */
export function requireCompiler(headers: readonly string[] = []): HostGate {
  const missing = headers.filter((header) => !hasHeader(header));
  // No program has the name of a header, so a missing header reads "needs seccomp.h".
  return requireHost({ linux: true, programs: ["cc", ...missing] });
}

function hasHeader(header: string): boolean {
  if (Bun.which("cc") === null) return false;
  return Bun.spawnSync(["cc", "-E", "-include", header, "-xc", "/dev/null"]).exitCode === 0;
}

/** A directory for the programs of one test file. */
export interface Scratch {
  readonly path: string;
  remove(): void;
}

/** Makes one. */
export function makeScratch(): Scratch {
  const path = mkdtempSync(join(tmpdir(), "cprg-seccomp-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Compiles one source of this folder; returns the program's path. */
export function compileC(name: string, directory: string, flags: readonly string[] = []): string {
  const program = join(directory, name);
  const source = join(import.meta.dir, `${name}.c`);
  const warnings = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"];
  const run = Bun.spawnSync(["cc", ...warnings, "-o", program, source, ...flags]);
  if (run.exitCode !== 0) throw new Error(`cc ${name}.c: ${run.stderr}`);
  return program;
}
