/**
 * The user's terminal handed over to a program elsewhere: no echo, no line editing, no signals from
 * keys, until it is given back, which it is on every way out of this process that runs any code.
 */

import { ReadStream, WriteStream } from "node:tty";
import type { TerminalSize } from "../provider/contract.ts";

/** A terminal in raw mode; disposing of it restores it. */
export interface RawTerminal extends Disposable {
  readonly size: TerminalSize;
  /** Calls back on each change of the size (SIGWINCH). */
  onResize(listener: (size: TerminalSize) => void): void;
}

/** Size where the terminal does not know its own. */
const SIZE_UNKNOWN: TerminalSize = { columns: 80, rows: 24 };

/** Puts the terminal of standard input into raw mode. */
export function openRawTerminal(): RawTerminal {
  const input = new ReadStream(0);
  const output = new WriteStream(1);
  const size = (): TerminalSize => {
    const [columns, rows] = output.getWindowSize();
    return columns > 0 && rows > 0 ? { columns, rows } : SIZE_UNKNOWN;
  };
  const listeners = new Set<() => void>();
  const restore = (): void => {
    input.setRawMode(false);
    process.off("exit", restore);
    for (const listener of listeners) process.off("SIGWINCH", listener);
    listeners.clear();
  };
  process.on("exit", restore);
  input.setRawMode(true);
  return {
    get size() {
      return size();
    },
    onResize: (listener) => {
      const onSignal = (): void => listener(size());
      listeners.add(onSignal);
      process.on("SIGWINCH", onSignal);
    },
    [Symbol.dispose]: restore,
  };
}
