/** Signals to `cprg run`: the first asks the program to stop, the second does not wait for it. */

import type { Terminal, TerminalSignal } from "./terminal.ts";

const SIGNALS: readonly TerminalSignal[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** What a run does when it is asked to stop. */
export interface StopActions {
  /** Called once, at the first signal. */
  cancel(): void;
  /** Called at every further one. */
  kill(): void;
}

/** Signals taken over until it is disposed of. */
export interface TakenSignals extends Disposable {
  /** The first signal that came, or null. */
  readonly first: TerminalSignal | null;
}

/** Takes over SIGINT, SIGTERM and SIGHUP. */
export function takeSignals(terminal: Terminal, actions: StopActions): TakenSignals {
  let first: TerminalSignal | null = null;
  const releases = SIGNALS.map((name) =>
    terminal.onSignal(name, () => {
      if (first !== null) return actions.kill();
      first = name;
      actions.cancel();
    }),
  );
  return {
    get first() {
      return first;
    },
    [Symbol.dispose]: () => {
      for (const release of releases) release();
    },
  };
}
