/** The groups of one sandbox's execs: each has a name of its own, and the first may be made ahead. */

import type { ExecGroup } from "./cgroup.ts";

/** Gives out groups, one for each exec. */
export class ExecGroups {
  readonly #make: (name: string) => Promise<ExecGroup>;
  readonly #making = new Set<Promise<unknown>>();
  #made = 0;
  #ahead: Promise<ExecGroup> | null = null;

  /** @param make makes the group of a name that was never used */
  constructor(make: (name: string) => Promise<ExecGroup>) {
    this.#make = make;
  }

  /** Makes the next one while there is nothing else to do. */
  prepare(): void {
    this.#ahead ??= this.#next();
  }

  take(): Promise<ExecGroup> {
    const group = this.#ahead ?? this.#next();
    this.#ahead = null;
    return group;
  }

  /**
   * Resolves when none is being made any more; closes the descriptors of one that was made for an
   * exec which never came.
   */
  async close(): Promise<void> {
    const ahead = this.#ahead;
    this.#ahead = null;
    await Promise.allSettled(this.#making);
    await ahead?.then((group) => group.sent()).catch(() => undefined);
  }

  #next(): Promise<ExecGroup> {
    this.#made += 1;
    const making = this.#make(`exec-${this.#made}`);
    this.#making.add(making);
    // Whoever takes it hears of a failure; nobody may.
    const settled = (): void => void this.#making.delete(making);
    making.then(settled, settled);
    return making;
  }
}
