/**
 * Items of one exec, in order, until the other side has taken them. It is what lets an exec go on
 * when its stream is lost: whoever attaches later reads from the first item that was not
 * acknowledged. What is kept is bounded; then the program waits.
 */

import { CprgError } from "../core/errors.ts";
import type { ExecExit, ExecItem, ExecStarted } from "../gen/messages.ts";
import type { OutputChannel } from "../provider/contract.ts";

/** Output that is kept before the program has to wait (PROTOCOL.md section 8, "Reattach"). */
export const KEPT_BYTES_MAX = 512 * 1024;
/** Output of one item (section 9, "Programs"). */
export const ITEM_OUTPUT_BYTES_MAX = 64 * 1024;
/** What an item counts beside its output, so that many small ones are bounded too. */
const ITEM_COST_BYTES = 64;

type Content =
  | { readonly started: ExecStarted }
  | { readonly exit: ExecExit }
  | { readonly channel: OutputChannel; readonly parts: Uint8Array[] };

interface Kept {
  readonly seq: number;
  readonly content: Content;
  costBytes: number;
  /** A reader has it: it does not change any more. */
  isSealed: boolean;
}

/** The log of one exec. One writer, and one reader at a time. */
export class ItemLog {
  readonly #keptBytesMax: number;
  #kept: Kept[] = [];
  #bytes = 0;
  #nextSeq = 1;
  #isEnded = false;
  #isDiscarded = false;
  #isClosed = false;
  /** Grows with each reader: an older one has been replaced. */
  #reader = 0;
  #wakeReader: (() => void) | null = null;
  #wakeWriters: (() => void)[] = [];

  constructor(keptBytesMax = KEPT_BYTES_MAX) {
    this.#keptBytesMax = keptBytesMax;
  }

  /** `seq` of the oldest item that can still be read. */
  get oldestSeq(): number {
    return this.#kept[0]?.seq ?? this.#nextSeq;
  }

  /** `seq` of the next item. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Output that is kept, and what its items count beside it. */
  get keptBytes(): number {
    return this.#bytes;
  }

  /** The exit is among the items. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The exit was taken: nothing is left that anyone could want. */
  get isTaken(): boolean {
    return this.#isEnded && this.#kept.length === 0;
  }

  started(started: ExecStarted): void {
    this.#add({ started }, 0);
  }

  /** Adds output; resolves when there is room for more. */
  async output(channel: OutputChannel, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#isClosed; at += ITEM_OUTPUT_BYTES_MAX) {
      this.#append(channel, bytes.subarray(at, at + ITEM_OUTPUT_BYTES_MAX));
      while (this.#bytes >= this.#keptBytesMax && !this.#isDiscarded && !this.#isClosed) {
        await new Promise<void>((resolve) => this.#wakeWriters.push(resolve));
      }
    }
  }

  /** The last item. */
  exit(exit: ExecExit): void {
    this.#isEnded = true;
    this.#add({ exit }, 0);
  }

  /** Everything up to this item was consumed: it is forgotten. */
  acknowledge(seq: number): void {
    while (this.#kept[0] !== undefined && this.#kept[0].seq <= seq) {
      this.#bytes -= this.#kept.shift()?.costBytes ?? 0;
    }
    if (this.#bytes < this.#keptBytesMax) for (const wake of this.#wakeWriters.splice(0)) wake();
  }

  /** Takes no more output, and holds back nobody; what is kept can be read, and the exit after it. */
  close(): void {
    this.#isClosed = true;
    for (const wake of this.#wakeWriters.splice(0)) wake();
  }

  /** Nobody will read: what comes is dropped, and holds back nobody. */
  discard(): void {
    this.#isDiscarded = true;
    this.acknowledge(Number.POSITIVE_INFINITY);
    this.#wakeReader?.();
  }

  /**
   * The items from one on, to the end; takes the place of the reader before.
   *
   * @param signal ends it, with its reason
   * @throws CprgError `data_loss` when the first is no longer kept, `aborted` REPLACED when another
   *   reader came
   */
  async *read(fromSeq: number, signal: AbortSignal): AsyncGenerator<ExecItem, void, void> {
    if (fromSeq < this.oldestSeq) {
      throw new CprgError(
        "data_loss",
        `Cannot go on at item ${fromSeq}: ${this.oldestSeq} is the oldest that is kept`,
      );
    }
    this.#reader += 1;
    const self = this.#reader;
    const wake = (): void => this.#wakeReader?.();
    wake();
    signal.addEventListener("abort", wake);
    try {
      for (let seq = fromSeq; !(this.#isEnded && seq >= this.#nextSeq); ) {
        this.#check(self, signal);
        // Numbers have no gap; what was acknowledged meanwhile is behind us.
        const kept = this.#kept[Math.max(0, seq - this.oldestSeq)];
        if (kept !== undefined) {
          kept.isSealed = true;
          yield itemOf(kept);
          seq = kept.seq + 1;
        } else if (this.#isDiscarded) {
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wakeReader = resolve;
          });
        }
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  #check(reader: number, signal: AbortSignal): void {
    if (signal.aborted) throw signal.reason;
    if (reader !== this.#reader) {
      throw new CprgError("aborted", "another call follows this exec", { reason: "REPLACED" });
    }
  }

  #append(channel: OutputChannel, bytes: Uint8Array): void {
    const last = this.#kept.at(-1);
    const isRoom = (last?.costBytes ?? 0) + bytes.length <= ITEM_OUTPUT_BYTES_MAX;
    if (last !== undefined && !last.isSealed && isRoom && "channel" in last.content) {
      if (last.content.channel === channel) {
        last.content.parts.push(bytes);
        last.costBytes += bytes.length;
        this.#bytes += bytes.length;
        return;
      }
    }
    this.#add({ channel, parts: [bytes] }, bytes.length);
  }

  #add(content: Content, bytes: number): void {
    const seq = this.#nextSeq;
    this.#nextSeq += 1;
    if (this.#isDiscarded) return;
    const costBytes = bytes + ITEM_COST_BYTES;
    this.#kept.push({ seq, content, costBytes, isSealed: false });
    this.#bytes += costBytes;
    this.#wakeReader?.();
  }
}

function itemOf({ seq, content }: Kept): ExecItem {
  if (!("channel" in content)) return { ...content, seq };
  const bytes = content.parts.length === 1 ? content.parts[0] : Buffer.concat(content.parts);
  return content.channel === "stdout"
    ? { stdout: bytes ?? new Uint8Array(), seq }
    : { stderr: bytes ?? new Uint8Array(), seq };
}
