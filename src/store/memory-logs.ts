/** Event logs in this process: the twin of sqlite-events.ts. */

import type { Subject } from "../core/event.ts";
import type { EventLine, LogHead, TimedDraft } from "./contract.ts";
import { noPreviousHead } from "./job-rules.ts";
import { emptyLog, linkDrafts, readBounds } from "./log-lines.ts";

/** Logs by subject, and the chain of each tenant. */
export class MemoryLogs {
  readonly #logs = new Map<Subject, { head: LogHead; readonly lines: EventLine[] }>();
  readonly #chains = new Map<string, Uint8Array>();

  append(subject: Subject, drafts: readonly TimedDraft[]): readonly EventLine[] {
    const log = this.#logs.get(subject) ?? { head: emptyLog(subject), lines: [] };
    const linked = linkDrafts(subject, log.head, drafts);
    if (linked.lines.length === 0) return [];
    log.head = linked.head;
    for (const line of linked.lines) log.lines.push(line);
    this.#logs.set(subject, log);
    return linked.lines;
  }

  /** Appends the terminal event; the tenant's chain moves on to this log. */
  finish(subject: Subject, draft: TimedDraft, tenant: string): void {
    this.append(subject, [draft]);
    const log = this.#logs.get(subject);
    if (log === undefined) throw new Error("BUG(cprg): a log without its last line");
    log.head = { ...log.head, previous: this.#chains.get(tenant) ?? noPreviousHead() };
    this.#chains.set(tenant, log.head.hash);
  }

  read(subject: Subject, fromSeq: number, asked: { limit: number; maxBytes: number }): EventLine[] {
    const { limit, maxBytes } = readBounds(fromSeq, asked);
    const lines = this.#logs.get(subject)?.lines ?? [];
    const page: EventLine[] = [];
    let bytes = 0;
    for (let index = fromSeq - 1; index < lines.length && page.length < limit; index += 1) {
      const line = lines[index];
      if (line === undefined) break;
      bytes += line.line.length;
      if (page.length > 0 && bytes > maxBytes) break;
      page.push(line);
    }
    return page;
  }

  /** Bytes of a log's lines. */
  bytes(subject: Subject): number {
    const lines = this.#logs.get(subject)?.lines ?? [];
    return lines.reduce((sum, { line }) => sum + Buffer.byteLength(line), 0);
  }

  head(subject: Subject): LogHead | null {
    return this.#logs.get(subject)?.head ?? null;
  }

  /** Returns how many lines the log had. */
  remove(subject: Subject): number {
    const lines = this.#logs.get(subject)?.lines.length ?? 0;
    this.#logs.delete(subject);
    return lines;
  }

  clear(): void {
    this.#logs.clear();
    this.#chains.clear();
  }
}
