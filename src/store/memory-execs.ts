/** Execs in this process: the twin of sqlite-execs.ts. */

import type { Subject } from "../core/event.ts";
import { type EndedExec, type ExecRecord, endExec } from "../core/exec.ts";
import type { Outcome } from "../core/outcome.ts";
import type { ExecPage, ExecQuery } from "./contract.ts";
import { byAge } from "./job-rules.ts";
import { finishedDraft } from "./log-lines.ts";
import type { MemoryLogs } from "./memory-logs.ts";
import { pageOf } from "./memory-page.ts";
import { alreadyExists } from "./sandbox-rules.ts";

/** Execs by id. */
export class MemoryExecs {
  readonly #logs: MemoryLogs;
  readonly #execs = new Map<string, ExecRecord>();

  constructor(logs: MemoryLogs) {
    this.#logs = logs;
  }

  has(subject: Subject): boolean {
    return subject.startsWith("exec:") && this.#execs.has(subject.slice(5));
  }

  insert(exec: ExecRecord): void {
    if (this.#execs.has(exec.id)) throw alreadyExists("exec", exec.id);
    this.#execs.set(exec.id, exec);
  }

  get(id: string): ExecRecord | null {
    return this.#execs.get(id) ?? null;
  }

  list(query: ExecQuery): ExecPage {
    const found = [...this.#execs.values()].filter(
      ({ sandboxId }) => sandboxId === query.sandboxId,
    );
    const { items, nextCursor } = pageOf(found, query);
    return { execs: items, nextCursor };
  }

  finish(id: string, outcome: Outcome, at: number): EndedExec | null {
    const exec = this.get(id);
    if (exec === null || exec.status !== "running") return null;
    const ended = endExec(exec, outcome, at);
    this.#logs.finish(`exec:${id}`, { at, draft: finishedDraft(outcome) }, exec.tenant);
    this.#execs.set(id, ended);
    return ended;
  }

  storedBytes(tenant: string): number {
    return [...this.#execs.values()]
      .filter((exec) => exec.tenant === tenant)
      .reduce((sum, { id, argv, finishedAt }) => {
        const kept = finishedAt === null ? 0 : Buffer.byteLength(JSON.stringify(argv));
        return sum + this.#logs.bytes(`exec:${id}`) + kept;
      }, 0);
  }

  orphans(livingInstances: readonly string[]): readonly ExecRecord[] {
    return [...this.#execs.values()]
      .filter(({ status, instance }) => status === "running" && !livingInstances.includes(instance))
      .sort(byAge);
  }

  /** How to remove each that ended before a time: returns how many lines its log had. */
  ended(before: number): readonly (() => number)[] {
    const ended = [...this.#execs.values()].filter(
      ({ finishedAt }) => (finishedAt ?? before) < before,
    );
    return ended.map(({ id }) => () => {
      this.#execs.delete(id);
      return this.#logs.remove(`exec:${id}`);
    });
  }

  /** Whether a sandbox has any. */
  areIn(sandboxId: string): boolean {
    return [...this.#execs.values()].some((exec) => exec.sandboxId === sandboxId);
  }

  clear(): void {
    this.#execs.clear();
  }
}
