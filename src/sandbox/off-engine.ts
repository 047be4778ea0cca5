/**
 * The engine without a sandbox, for whoever asks for it by name: programs run as this user, with the
 * host's files and network. Only wall time and output are bounded. It says so in every place where
 * the real engine says what protects.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { newId } from "../core/ids.ts";
import type { Limits } from "../core/limits.ts";
import type { ExecLease, Reservation, ReserveOptions } from "../provider/contract.ts";
import { Admission } from "./admission.ts";
import type { EngineOptions, EngineStatus, LocalEngine } from "./engine-contract.ts";
import { LocalLanguages } from "./languages.ts";
import { OffLease } from "./off-lease.ts";

const LAYERS = {
  root: false,
  identity: false,
  namespaces: false,
  cgroup: false,
  rlimits: false,
  seccomp: false,
  descriptors: false,
  environment: true,
} as const;

/** Opens it. */
export function openOffEngine(options: EngineOptions): LocalEngine {
  return new OffEngine(options);
}

class OffEngine implements LocalEngine {
  readonly name = "local";
  readonly mode = "off";
  readonly layers = LAYERS;
  readonly missing = Object.entries(LAYERS).flatMap(([name, isOn]) => (isOn ? [] : [name]));
  readonly instance = newId();
  readonly languages: LocalLanguages;
  readonly #directory: string;
  readonly #leases = new Set<OffLease>();
  /** No admission: nothing holds a program to its limits. */
  readonly #admission = new Admission({
    memMb: Number.MAX_SAFE_INTEGER,
    pids: Number.MAX_SAFE_INTEGER,
  });

  constructor(options: EngineOptions) {
    mkdirSync(options.runDir, { recursive: true, mode: 0o700 });
    this.#directory = mkdtempSync(join(options.runDir, "off-"));
    this.languages = new LocalLanguages({
      interpreters: options.interpreters ?? {},
      runtime: process.execPath,
      codeDirectory: "",
      openSandbox: async () => this.#open({ wall_seconds: 30, output_kb: 1024 }),
    });
  }

  reserve(limits: Limits, options: ReserveOptions = {}): Promise<Reservation> {
    return this.#admission.reserve(limits, options);
  }

  async open(reservation: Reservation): Promise<ExecLease> {
    return this.#open(reservation.limits, this.#admission.occupy(reservation));
  }

  status(): EngineStatus {
    return {
      mode: this.mode,
      instance: this.instance,
      sandboxes: this.#leases.size,
      pooled: 0,
      ...this.#admission.status,
    };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#leases].map((lease) => lease.release()));
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #open(
    limits: Pick<Limits, "wall_seconds" | "output_kb">,
    onReleased: () => void = () => undefined,
  ): OffLease {
    const lease: OffLease = new OffLease({
      directory: mkdtempSync(join(this.#directory, "lease-")),
      limits,
      layers: this.layers,
      missing: this.missing,
      onReleased: () => {
        this.#leases.delete(lease);
        onReleased();
      },
    });
    this.#leases.add(lease);
    return lease;
  }
}
