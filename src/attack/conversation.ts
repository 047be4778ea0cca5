/** Talking to a hostile program: a line in, a bounded beginning of its output, its notices. */

import type { Exec, ExecNotice, OutputChannel } from "../provider/contract.ts";
import { READY } from "./attack.ts";

/** Bytes that are kept of each stream: a program's report fits, a flood does not. */
const KEPT_BYTES_MAX = 512 * 1024;
/** Notices that are kept; there are a few for each limit, and samples of use are dropped. */
const NOTICES_MAX = 100;

const READY_LINE = new RegExp(`^${READY}$`, "m");

type Notice = Exclude<ExecNotice, { type: "output" }>;

/** Reads an exec to its end. */
export class Conversation {
  readonly #exec: Exec;
  readonly #notices: Notice[] = [];
  readonly #text: Record<OutputChannel, string> = { stdout: "", stderr: "" };
  readonly #received: Record<OutputChannel, number> = { stdout: 0, stderr: 0 };
  readonly #reading: Promise<void>;
  readonly #ready: Promise<boolean>;
  #becomeReady: (isReady: boolean) => void = () => undefined;

  /** @param options `hostLine` is written first, or null for a program that reads none */
  constructor(exec: Exec, { hostLine }: { readonly hostLine: string | null }) {
    this.#exec = exec;
    this.#ready = new Promise((resolve) => {
      this.#becomeReady = resolve;
    });
    this.#reading = this.#readAll();
    if (hostLine !== null) {
      // A program that does not read, or is dead already, is judged by what it did.
      exec.write(Buffer.from(`${hostLine}\n`)).catch(() => undefined);
    }
  }

  get notices(): readonly Notice[] {
    return this.#notices;
  }

  get stdout(): string {
    return this.#text.stdout;
  }

  get stderr(): string {
    return this.#text.stderr;
  }

  get received(): Readonly<Record<OutputChannel, number>> {
    return this.#received;
  }

  /** @returns false when it ended without having been ready */
  untilReady(): Promise<boolean> {
    return this.#ready;
  }

  /** Closes its input and reads on to the end. */
  async untilEnd(): Promise<void> {
    await this.#exec.closeInput().catch(() => undefined);
    await this.#reading;
  }

  async #readAll(): Promise<void> {
    for await (const notice of this.#exec.notices) {
      if (notice.type !== "output") this.#note(notice);
      else this.#hear(notice.channel, notice.bytes);
    }
    this.#becomeReady(false);
  }

  #note(notice: Notice): void {
    if (notice.type !== "usage" && this.#notices.length < NOTICES_MAX) this.#notices.push(notice);
  }

  #hear(channel: OutputChannel, bytes: Uint8Array): void {
    this.#received[channel] += bytes.length;
    if (this.#text[channel].length >= KEPT_BYTES_MAX) return;
    this.#text[channel] += Buffer.from(bytes).toString("latin1");
    if (channel === "stdout" && READY_LINE.test(this.#text.stdout)) this.#becomeReady(true);
  }
}
