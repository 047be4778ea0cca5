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
  const size = (): TerminalSize => {
    // A stream knows the size from when it was made.
    const [columns, rows] = new WriteStream(1).getWindowSize();
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
  leaveOutputAlone();
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

/**
 * The runtime's raw mode still makes a carriage return of every line feed (libuv, `uv_tty_set_mode`),
 * where full-screen programs mean one line down. Without stty(1) it stays so.
 */
function leaveOutputAlone(): void {
  try {
    Bun.spawnSync(["stty", "-opost"], { stdin: "inherit", stdout: "ignore", stderr: "ignore" });
  } catch {
    // There is none here: most programs are shown right all the same.
  }
}
