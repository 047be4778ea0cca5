/**
 * Turns what an exec reports into rows of its event log: batches output, keeps the order of arrival,
 * commits, and holds the exec back when the log is slower. Knows neither HTTP nor the queue.
 */

import type { Clock } from "../core/clock.ts";
import { type EventDraft, OUTPUT_FLUSH_MS, type OutputBytes } from "../core/event.ts";
import type { ExecNotice, OutputChannel } from "../provider/contract.ts";
import type { TimedDraft } from "../store/contract.ts";
import { OUTPUT_BOUNDS, type RowBounds, RowCutter } from "./output-rows.ts";

/** Bytes that may wait for a commit while another is on its way; beyond them the exec waits. */
export const PENDING_BYTES_MAX = 256 * 1024;

/** Events of one commit: well below what the store takes at once (`APPEND_DRAFTS_MAX`). */
export const COMMIT_EVENTS_MAX = 1024;

/** What a row costs in memory beside its text. */
const ROW_OVERHEAD_BYTES = 256;

/** Bytes of a chunk that is freed at once. */
const FREED_BYTES_LEAST = 4096;

/** What a recorder works with. */
export interface RecorderOptions {
  /** Commits events in order; resolves when they are on disk. */
  append(drafts: readonly TimedDraft[]): Promise<unknown>;
  readonly clock: Clock;
  /** Called once, when a commit failed: nothing is recorded from then on. */
  onFailure(error: unknown): void;
  /** Bounds of rows, for tests. */
  readonly bounds?: RowBounds;
}

/** Records one run. */
export class Recorder {
  readonly #options: RecorderOptions;
  readonly #cutters: Readonly<Record<OutputChannel, RowCutter>>;
  /** The stream whose row is being filled, and when its first byte came. */
  #open: { readonly channel: OutputChannel; readonly at: number } | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #ready: TimedDraft[] = [];
  #readyBytes = 0;
  #lastAt = 0;
  #inFlight: Promise<void> | null = null;
  #failure: { readonly error: unknown } | null = null;

  constructor(options: RecorderOptions) {
    this.#options = options;
    const bounds = options.bounds ?? OUTPUT_BOUNDS;
    this.#cutters = { stdout: new RowCutter(bounds), stderr: new RowCutter(bounds) };
  }

  /** Puts one event behind everything that came before it. */
  record(draft: EventDraft): void {
    this.#closeRow();
    this.#push(draft, { at: this.#options.clock.now(), bytes: 0 });
    this.#commit();
  }

  /**
   * Records all notices of an exec, whose bytes are the recorder's from then on. After a failed
   * commit the rest is read and dropped, so that the exec can end.
   *
   * @throws what the failed commit threw
   */
  async follow(notices: AsyncIterable<ExecNotice>): Promise<void> {
    for await (const notice of notices) {
      if (this.#failure !== null) continue;
      this.#take(notice);
      if (this.#readyBytes < PENDING_BYTES_MAX) continue;
      // Streams that take turns close row after row without a full one: nothing else commits them.
      this.#commit();
      while (this.#readyBytes >= PENDING_BYTES_MAX && this.#inFlight !== null) await this.#inFlight;
    }
    await this.end();
  }

  /** Commits what is left. @throws what a failed commit threw */
  async end(): Promise<void> {
    this.#closeRow();
    for (const channel of ["stdout", "stderr"] as const) this.#endStream(channel);
    this.#commit();
    while (this.#inFlight !== null) await this.#inFlight;
    if (this.#failure !== null) throw this.#failure.error;
  }

  #take(notice: ExecNotice): void {
    switch (notice.type) {
      case "output":
        this.#takeOutput(notice.channel, notice.bytes);
        break;
      case "truncated":
        this.#closeRow();
        this.#endStream(notice.channel);
        this.record({
          kind: "truncated",
          data: { stream: notice.channel, limit_bytes: notice.limitBytes },
        });
        break;
      case "limit":
        this.record({ kind: "limit", data: notice.hit });
        break;
      case "violation":
        this.record({ kind: "violation", data: notice.violation });
        break;
      case "usage":
        this.record({
          kind: "usage",
          data: { cpu_ms: notice.cpuMs, memory_bytes: notice.memoryBytes, pids: notice.pids },
        });
        break;
    }
  }

  #takeOutput(channel: OutputChannel, bytes: Uint8Array): void {
    if (this.#open !== null && this.#open.channel !== channel) this.#closeRow();
    const now = this.#options.clock.now();
    const cutter = this.#cutters[channel];
    const full = cutter.push(bytes);
    free(bytes);
    if (full.length > 0) {
      this.#pushRows(channel, full, this.#open?.at ?? now);
      this.#forgetRow();
      this.#commit();
    }
    if (this.#open === null && cutter.isOpen) {
      this.#open = { channel, at: now };
      this.#timer = setTimeout(() => {
        this.#closeRow();
        this.#commit();
      }, OUTPUT_FLUSH_MS);
    }
  }

  #closeRow(): void {
    if (this.#open === null) return;
    const { channel, at } = this.#open;
    this.#forgetRow();
    const row = this.#cutters[channel].close();
    if (row !== null) this.#pushRows(channel, [row], at);
  }

  #forgetRow(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#open = null;
  }

  #endStream(channel: OutputChannel): void {
    this.#pushRows(channel, this.#cutters[channel].end(), this.#options.clock.now());
  }

  #pushRows(channel: OutputChannel, rows: readonly Uint8Array<ArrayBuffer>[], at: number): void {
    for (const bytes of rows) this.#push({ kind: channel, bytes }, { at, bytes: bytes.length });
  }

  /** Times never go back within a log, whatever the wall clock does. */
  #push(draft: EventDraft | OutputBytes, { at, bytes }: { at: number; bytes: number }): void {
    if (this.#failure !== null) return;
    this.#lastAt = Math.max(this.#lastAt, at);
    this.#ready.push({ at: this.#lastAt, draft });
    this.#readyBytes += bytes + ROW_OVERHEAD_BYTES;
  }

  #commit(): void {
    if (this.#inFlight !== null || this.#failure !== null || this.#ready.length === 0) return;
    const batch = this.#ready.slice(0, COMMIT_EVENTS_MAX);
    this.#ready = this.#ready.slice(batch.length);
    // Too high until all is out, which holds the exec back a little longer and no memory.
    if (this.#ready.length === 0) this.#readyBytes = 0;
    this.#inFlight = this.#options.append(batch).then(
      () => {
        this.#inFlight = null;
        this.#commit();
      },
      (error: unknown) => {
        this.#inFlight = null;
        this.#fail(error);
      },
    );
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#ready = [];
    this.#readyBytes = 0;
    this.#options.onFailure(error);
  }
}

/**
 * Frees memory that is done with now, not at some collection: a flood of output would be ahead of
 * those. A part of a larger buffer is others' too, and a small one is not worth it.
 */
function free({ buffer, byteLength }: Uint8Array): void {
  const isWhole = byteLength === buffer.byteLength && buffer instanceof ArrayBuffer;
  if (isWhole && byteLength >= FREED_BYTES_LEAST) buffer.transfer(0);
}
