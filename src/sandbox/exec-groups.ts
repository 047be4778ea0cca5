/** The groups of one sandbox's execs: each has a name of its own, and the first may be made ahead. */

import type { ExecGroup } from "./cgroup.ts";

/** Gives out groups, one for each exec. */
export class ExecGroups {
  readonly #make: (name: string) => ExecGroup;
  #made = 0;
  #ahead: ExecGroup | null = null;

  /** @param make makes the group of a name that was never used */
  constructor(make: (name: string) => ExecGroup) {
    this.#make = make;
  }

  /** Makes the next one while there is nothing else to do. */
  prepare(): void {
    this.#ahead ??= this.#next();
  }

  take(): ExecGroup {
    const group = this.#ahead ?? this.#next();
    this.#ahead = null;
    return group;
  }

  /** Closes the descriptors of one that was made for an exec which never came. */
  close(): void {
    this.#ahead?.sent();
  }

  #next(): ExecGroup {
    this.#made += 1;
    return this.#make(`exec-${this.#made}`);
  }
}
