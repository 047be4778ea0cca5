/** Killing again and again: one SIGKILL may miss what is being forked or started at that moment. */

/** Kills before it is given up, and the pause between two: ten seconds. */
export const KILL_TRIES_MAX = 500;
const KILL_PAUSE_MS = 20;

/** How something is killed, and what is done when that does not end it. */
export interface KillUntilOptions {
  /** Called at once, then until it is gone; must not throw. */
  kill(tries: number): void;
  /** Called once, after the last try. */
  giveUp(): void;
}

/** Kills until a promise settles, or gives up; never rejects. */
export async function killUntil(gone: Promise<unknown>, options: KillUntilOptions): Promise<void> {
  const state = { isGone: false };
  const noteEnd = (): void => {
    state.isGone = true;
  };
  const over = gone.then(noteEnd, noteEnd);
  for (let tries = 0; tries < KILL_TRIES_MAX; tries += 1) {
    options.kill(tries);
    await settledWithin(over, KILL_PAUSE_MS);
    if (state.isGone) return;
  }
  options.giveUp();
}

/** Resolves when a promise does, or after a time; leaves no timer behind. */
export async function settledWithin(promise: Promise<unknown>, timeoutMs: number): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, timeoutMs);
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
