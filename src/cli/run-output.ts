/**
 * Where a run's output goes while it runs. Writing to standard output holds back the program, never
 * memory; a reader that has gone away ends the run.
 */

import { ClosedOutput, type Terminal } from "./terminal.ts";

/** Takes output and remembers what became of the reader. */
export class RunOutput {
  readonly #terminal: Terminal;
  readonly #onFailure: () => void;
  readonly #abandoned = Promise.withResolvers<void>();
  #isGone = false;
  #failure: { readonly error: unknown } | null = null;

  /** @param onFailure called once, when standard output takes no more: closed, or a full disk */
  constructor(terminal: Terminal, onFailure: () => void) {
    this.#terminal = terminal;
    this.#onFailure = onFailure;
  }

  /**
   * Whether standard output was closed by its reader.
   *
   * @throws what else it failed of
   */
  get isClosed(): boolean {
    if (this.#failure === null) return false;
    if (this.#failure.error instanceof ClosedOutput) return true;
    throw this.#failure.error;
  }

  /** Writes bytes to where the program wrote them; never rejects. */
  async write(channel: "stdout" | "stderr", bytes: Uint8Array): Promise<void> {
    if (this.#isGone) return;
    const written = this.#terminal[channel].write(bytes).catch((error: unknown) => {
      if (channel === "stdout") this.#fail(error);
    });
    await Promise.race([written, this.#abandoned.promise]);
  }

  /** Waits no longer for a reader that does not read: what comes from now on is dropped. */
  abandon(): void {
    this.#isGone = true;
    this.#abandoned.resolve();
  }

  /** Of standard output alone: a closed standard error takes only itself away. */
  #fail(error: unknown): void {
    if (this.#failure !== null) return;
    this.#failure = { error };
    this.#isGone = true;
    this.#onFailure();
  }
}
