/** Sandboxes in this process: the twin of sqlite-sandboxes.ts. */

import type { SandboxEnd, SandboxRecord } from "../core/sandbox.ts";
import type { SandboxPage, SandboxQuery } from "./contract.ts";
import { byAge } from "./job-rules.ts";
import { pageOf } from "./memory-page.ts";
import { alreadyExists } from "./sandbox-rules.ts";

/** Sandboxes by id. */
export class MemorySandboxes {
  readonly #sandboxes = new Map<string, SandboxRecord>();

  insert(sandbox: SandboxRecord): void {
    if (this.#sandboxes.has(sandbox.id)) throw alreadyExists("sandbox", sandbox.id);
    this.#sandboxes.set(sandbox.id, sandbox);
  }

  get(id: string): SandboxRecord | null {
    return this.#sandboxes.get(id) ?? null;
  }

  list(query: SandboxQuery): SandboxPage {
    const found = [...this.#sandboxes.values()]
      .filter(({ tenant }) => tenant === query.tenant)
      .filter(({ endedAt }) => query.isOpen !== true || endedAt === null);
    const { items, nextCursor } = pageOf(found, query);
    return { sandboxes: items, nextCursor };
  }

  end(id: string, reason: SandboxEnd, at: number): SandboxRecord | null {
    const sandbox = this.get(id);
    if (sandbox === null || sandbox.endedAt !== null) return null;
    const ended = { ...sandbox, endedAt: at, reason };
    this.#sandboxes.set(id, ended);
    return ended;
  }

  orphans(livingInstances: readonly string[]): readonly SandboxRecord[] {
    return [...this.#sandboxes.values()]
      .filter(({ endedAt, instance }) => endedAt === null && !livingInstances.includes(instance))
      .sort(byAge);
  }

  storedBytes(tenant: string): number {
    return [...this.#sandboxes.values()]
      .filter((sandbox) => sandbox.tenant === tenant)
      .reduce((sum, { limits, labels, placement }) => {
        const placed = placement === null ? "" : JSON.stringify(placement);
        return sum + Buffer.byteLength(JSON.stringify(limits) + JSON.stringify(labels) + placed);
      }, 0);
  }

  /** How to remove each that ended before a time and is not kept for its execs. */
  ended(before: number, isKept: (id: string) => boolean): readonly (() => number)[] {
    const ended = [...this.#sandboxes.values()].filter(
      ({ id, endedAt }) => (endedAt ?? before) < before && !isKept(id),
    );
    return ended.map(({ id }) => () => {
      this.#sandboxes.delete(id);
      return 0;
    });
  }

  clear(): void {
    this.#sandboxes.clear();
  }
}
