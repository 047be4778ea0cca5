// The longest time that a process's event loop did not turn. Started as a program of its own it is
// the reference: the same loop with nothing else to do, under the same load. It then answers every
// line on standard input with the numbers since the last one.

import { closeSync, openSync, readSync } from "node:fs";

/** Interval of the probe's timer. */
const TICK_MS = 1;

/** The longest delays since they were last taken, in milliseconds. */
export interface Lag {
  /** From when the timer was due to when it ran. */
  readonly lagMs: number;
  /** The same without the time in which the thread could run and the kernel ran others. */
  readonly blockMs: number;
}

/** A probe that runs. */
export interface LagProbe extends Disposable {
  /** The longest since the last call. */
  take(): Lag;
}

/** Starts a probe of this process's main thread. */
export function startLagProbe(): LagProbe {
  // Second field: nanoseconds that the thread waited on a run queue (sched-stats.rst).
  const file = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
  const buffer = Buffer.alloc(128);
  const waitedMs = (): number => {
    const length = readSync(file, buffer, 0, buffer.length, 0);
    return Number(buffer.toString("latin1", 0, length).split(" ")[1]) / 1e6;
  };
  let lagMs = 0;
  let blockMs = 0;
  let last = performance.now();
  let lastWaited = waitedMs();
  const timer = setInterval(() => {
    const now = performance.now();
    const waited = waitedMs();
    const lag = Math.max(0, now - last - TICK_MS);
    lagMs = Math.max(lagMs, lag);
    blockMs = Math.max(blockMs, lag - (waited - lastWaited));
    last = now;
    lastWaited = waited;
  }, TICK_MS);
  return {
    take() {
      const taken = { lagMs, blockMs };
      lagMs = 0;
      blockMs = 0;
      return taken;
    },
    [Symbol.dispose]: () => {
      clearInterval(timer);
      closeSync(file);
    },
  };
}

if (import.meta.main) {
  const probe = startLagProbe();
  for await (const _ of console) console.log(JSON.stringify(probe.take()));
  probe[Symbol.dispose]();
}
