// A terminal in memory: what a command writes is kept, what it may read is given.

import type { ByteSink, Terminal, TerminalSignal } from "../../../src/cli/terminal.ts";

export interface MemoryTerminal extends Terminal {
  readonly out: () => string;
  readonly err: () => string;
  send(signal: TerminalSignal): void;
}

export function memoryTerminal(
  options: { env?: Record<string, string>; stdin?: string; uid?: number } = {},
): MemoryTerminal {
  const out = memorySink();
  const err = memorySink();
  const listeners = new Map<TerminalSignal, Set<() => void>>();
  return {
    stdout: out.sink,
    stderr: err.sink,
    log: err.sink,
    out: out.text,
    err: err.text,
    isStdinTerminal: options.stdin === undefined,
    raw: () => null,
    async *readStdin() {
      yield Buffer.from(options.stdin ?? "");
    },
    env: options.env ?? {},
    directory: "/",
    uid: options.uid ?? 1000,
    onSignal(name, listener) {
      const set = listeners.get(name) ?? new Set();
      listeners.set(name, set.add(listener));
      return () => set.delete(listener);
    },
    send: (signal) => {
      for (const listener of listeners.get(signal) ?? []) listener();
    },
  };
}

function memorySink(): { sink: ByteSink; text: () => string } {
  const chunks: Uint8Array[] = [];
  const sink: ByteSink = {
    isTerminal: false,
    write: async (content) => {
      chunks.push(typeof content === "string" ? Buffer.from(content) : content.slice());
    },
    drain: async () => undefined,
  };
  return { sink, text: () => Buffer.concat(chunks).toString() };
}
