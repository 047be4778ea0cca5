/**
 * Where a run's output goes while it runs. Writing to standard output holds back the program, never
 * memory; a reader that has gone away ends the run.
 */

import type { Terminal } from "./terminal.ts";

/** Takes output and remembers what became of the reader. */
export class RunOutput {
  readonly #terminal: Terminal;
  readonly #onClosed: () => void;
  readonly #abandoned = Promise.withResolvers<void>();
  #isGone = false;
  #isClosed = false;

  /** @param onClosed called once, when standard output was closed by its reader */
  constructor(terminal: Terminal, onClosed: () => void) {
    this.#terminal = terminal;
    this.#onClosed = onClosed;
  }

  /** Whether standard output was closed by its reader. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Writes bytes to where the program wrote them; never rejects. */
  async write(channel: "stdout" | "stderr", bytes: Uint8Array): Promise<void> {
    if (this.#isGone) return;
    const written = this.#terminal[channel].write(bytes).catch(() => this.#onFailure(channel));
    await Promise.race([written, this.#abandoned.promise]);
  }

  /** Waits no longer for a reader that does not read: what comes from now on is dropped. */
  abandon(): void {
    this.#isGone = true;
    this.#abandoned.resolve();
  }

  /** A closed standard error takes only itself away. */
  #onFailure(channel: "stdout" | "stderr"): void {
    if (channel === "stderr" || this.#isClosed) return;
    this.#isClosed = true;
    this.#isGone = true;
    this.#onClosed();
  }
}
