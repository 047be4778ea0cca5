/**
 * A claim's place without a sandbox: a directory of this host, programs as this user. Paths of files
 * are confined to it; programs are not, and no limit but time holds them.
 */

import { closeSync, constants, mkdirSync, readlinkSync, realpathSync } from "node:fs";
import type { Layers } from "../core/event.ts";
import { newId } from "../core/ids.ts";
import type { Exec, ExecSpec } from "../provider/contract.ts";
import type { Native } from "../sandbox/native.ts";
import { ConfinedRoots } from "./confined-roots.ts";
import type { Place } from "./place.ts";
import { startPlainExec } from "./plain-exec.ts";
import { PlainFiles } from "./plain-files.ts";
import { killMarked } from "./process-marks.ts";

const LAYERS: Layers = {
  root: false,
  identity: false,
  namespaces: false,
  cgroup: false,
  rlimits: false,
  seccomp: false,
  descriptors: true,
  environment: true,
};
const MISSING = Object.keys(LAYERS).filter((name) => LAYERS[name] === false);

/** Where it is. */
export interface PlainPlaceOptions {
  readonly native: Native;
  /** Absolute; made when they are missing, never removed. */
  readonly root: string;
  readonly home: string;
  /** Called once, when nothing of it runs any more. */
  onReleased?(): void;
}

/** A directory of this host. */
export class PlainPlace implements Place {
  readonly #native: Native;
  readonly #onReleased: () => void;
  readonly #roots: ConfinedRoots;
  readonly #mark = newId();
  #started = 0;
  #release: Promise<void> | null = null;
  readonly root: string;
  readonly home: string;
  readonly layers = LAYERS;
  readonly missing = MISSING;
  readonly limits = null;
  readonly files: PlainFiles;

  constructor({ native, root, home, onReleased }: PlainPlaceOptions) {
    for (const directory of [root, home]) mkdirSync(directory, { recursive: true });
    this.#native = native;
    this.#onReleased = onReleased ?? (() => undefined);
    this.root = realpathSync(root);
    this.home = realpathSync(home);
    this.#roots = new ConfinedRoots(native, [this.root, this.home]);
    this.files = new PlainFiles(native, this.#roots);
  }

  async exec(spec: ExecSpec): Promise<Exec> {
    const fd = this.#roots.open(spec.directory ?? ".", constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      this.#started += 1;
      return startPlainExec(spec, {
        native: this.#native,
        mark: `${this.#mark}.${this.#started}`,
        directory: readlinkSync(`/proc/self/fd/${fd}`),
      });
    } finally {
      closeSync(fd);
    }
  }

  release(): Promise<void> {
    this.#release ??= this.#end();
    return this.#release;
  }

  async #end(): Promise<void> {
    await killMarked(`${this.#mark}.`, null);
    this.#roots.close();
    this.#onReleased();
  }
}
