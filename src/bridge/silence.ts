/** Notices that the other side says nothing any more, although its stream is there. */

import { startTimer, type Timer } from "../core/timer.ts";
import type { Mux } from "./contract.ts";

/** What this process itself may have slept through is read before the other side counts as silent. */
const CONFIRM_MS_MAX = 1000;

/** Periods of heartbeats without a frame after which a stream is given up (PROTOCOL.md section 8). */
export const SILENT_PERIODS = 2.5;

/** Calls back once when no frame has come for so long, unless the stream ends or it is cleared before. */
export function watchSilence(mux: Mux, silenceMs: number, onSilent: () => void): Timer {
  let timer: Timer;
  let isCleared = false;
  let isConfirming = false;
  const look = (): void => {
    const leftMs = mux.lastFrameMs + silenceMs - performance.now();
    if (leftMs <= 0 && isConfirming) {
      onSilent();
    } else {
      isConfirming = leftMs <= 0;
      arm(isConfirming ? Math.min(CONFIRM_MS_MAX, silenceMs / 10) : leftMs);
    }
  };
  const arm = (delayMs: number): void => {
    if (isCleared) return;
    timer = startTimer(delayMs, look);
  };
  arm(silenceMs);
  const clear = (): void => {
    isCleared = true;
    timer.clear();
  };
  void mux.closed.then(clear);
  return { clear };
}
