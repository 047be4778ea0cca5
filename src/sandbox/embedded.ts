/**
 * The files of ffi/ that are part of the executable: libcprg.so and cprg-init of this CPU. The
 * bundler drops the branches of other CPUs, so a build needs only its own.
 */

import { CprgError } from "../core/errors.ts";

/** Bytes of the shim and of process 1. */
export interface EmbeddedFiles {
  readonly library: Uint8Array;
  readonly init: Uint8Array;
}

/** Reads both. @throws CprgError where they were not built or the platform has none */
export async function readEmbedded(): Promise<EmbeddedFiles> {
  if (process.platform !== "linux") throw unsupported(process.platform);
  const [library, init] = await locate();
  return {
    library: await Bun.file(library).bytes(),
    init: await Bun.file(init).bytes(),
  };
}

async function locate(): Promise<readonly [string, string]> {
  try {
    if (process.arch === "arm64") {
      const library = await import("../../dist/ffi/aarch64/libcprg.so", { with: { type: "file" } });
      const init = await import("../../dist/ffi/aarch64/cprg-init", { with: { type: "file" } });
      return [library.default, init.default];
    }
    if (process.arch === "x64") {
      const library = await import("../../dist/ffi/x86_64/libcprg.so", { with: { type: "file" } });
      const init = await import("../../dist/ffi/x86_64/cprg-init", { with: { type: "file" } });
      return [library.default, init.default];
    }
  } catch (cause) {
    throw new CprgError("failed_precondition", "Cannot find the sandbox's native files", {
      reason: "NOT_BUILT",
      hint: "Run `make ffi`",
      cause,
    });
  }
  throw unsupported(process.arch);
}

function unsupported(what: string): CprgError {
  return new CprgError("failed_precondition", `Cannot run sandboxes on ${what}`, {
    reason: "UNSUPPORTED_PLATFORM",
    hint: "Linux on x86_64 or aarch64 has sandboxes; elsewhere `--sandbox off` runs without any",
  });
}
