/**
 * Waiting for a child of this process to end. The kernel says so with SIGCHLD, which does not say
 * whose end it is and may stand for several: whoever waits looks again, and does not rely on it.
 */

const waiting = new Set<() => void>();

function wakeAll(): void {
  for (const wake of [...waiting]) wake();
}

/** Resolves at the next SIGCHLD, or after a time. */
export function childSignal(timeoutMs: number): Promise<void> {
  return new Promise((resolve) => {
    const wake = (): void => {
      clearTimeout(timer);
      waiting.delete(wake);
      if (waiting.size === 0) process.off("SIGCHLD", wakeAll);
      resolve();
    };
    const timer = setTimeout(wake, timeoutMs);
    if (waiting.size === 0) process.on("SIGCHLD", wakeAll);
    waiting.add(wake);
  });
}
