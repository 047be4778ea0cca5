/** A claim's place in the local engine: a sandbox of its own, which goes with the claim. */

import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Layers } from "../core/event.ts";
import type { Limits } from "../core/limits.ts";
import type { Exec, ExecLease, ExecSpec } from "../provider/contract.ts";
import type { LocalEngine } from "../sandbox/engine-contract.ts";
import type { ClaimOrder } from "./claim-request.ts";
import { pathEscapes } from "./file-error.ts";
import type { Place } from "./place.ts";
import { SandboxFiles } from "./sandbox-files.ts";

/** A sandbox. */
export class SandboxPlace implements Place {
  readonly #lease: ExecLease;
  readonly limits: Limits;
  readonly files: SandboxFiles;

  private constructor(lease: ExecLease, limits: Limits, files: SandboxFiles) {
    this.#lease = lease;
    this.limits = limits;
    this.files = files;
  }

  /**
   * Opens one; waits until its limits fit beside those of others.
   *
   * @throws CprgError `failed_precondition` CLONE_FAILED for a repository: a sandbox has no network
   */
  static async open(
    engine: LocalEngine,
    { limits, order, signal }: { limits: Limits; order: ClaimOrder; signal: AbortSignal },
  ): Promise<SandboxPlace> {
    if (order.repository !== null) {
      throw new CprgError("failed_precondition", "Cannot clone: a sandbox has no network", {
        reason: "CLONE_FAILED",
        hint: "Upload the repository, or use a worker with --isolate off",
      });
    }
    const runtime = await engine.languages.resolve("javascript");
    const reservation = await engine.reserve(limits, { signal });
    const lease = await engine.open(reservation, { signal });
    return new SandboxPlace(lease, limits, new SandboxFiles(lease, runtime));
  }

  get root(): string {
    return this.#lease.root;
  }

  get home(): string {
    return this.#lease.home;
  }

  get layers(): Layers {
    return this.#lease.layers;
  }

  get missing(): readonly string[] {
    return this.#lease.missing;
  }

  async exec(spec: ExecSpec): Promise<Exec> {
    const { root, home } = this.#lease;
    const directory = posix.resolve(root, spec.directory ?? "");
    const isWithin = [root, home].some((base) => `${directory}/`.startsWith(`${base}/`));
    if (!isWithin) throw pathEscapes(directory);
    try {
      return await this.#lease.exec({ ...spec, directory });
    } catch (error) {
      // Process 1 says no more than that it cannot be entered.
      if (CprgError.is(error) && error.reason === "DIRECTORY") await this.#explain(directory);
      throw error;
    }
  }

  /** Why a directory cannot be entered, as for files. */
  async #explain(directory: string): Promise<void> {
    await this.files.list(directory, { after: "", limit: 1 });
  }

  release(): Promise<void> {
    return this.#lease.release();
  }
}
