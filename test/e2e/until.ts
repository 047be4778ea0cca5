// Waiting for a condition of the host that sends no event: looks again until a deadline.

import { setTimeout as sleep } from "node:timers/promises";

const LOOK_MS = 5;

/** Resolves with the first value that is not null. @throws at the deadline, with the last state */
export async function until<T>(
  look: () => T | null | Promise<T | null>,
  options: { readonly what: string; readonly deadlineMs?: number; state?(): unknown },
): Promise<T> {
  const { what, deadlineMs = 30_000, state } = options;
  const endMs = performance.now() + deadlineMs;
  while (performance.now() < endMs) {
    const value = await look();
    if (value !== null) return value;
    await sleep(LOOK_MS);
  }
  throw new Error(`not within ${deadlineMs} ms: ${what}: ${JSON.stringify(state?.())}`);
}
