/**
 * The runtime's first thread for files and output. It makes such threads when they are wanted, and
 * where the kernel gives none it waits for ever and says nothing: so the first is taken at the start,
 * and what does not come is an error. It stays for the life of the process.
 */

import { writeSync } from "node:fs";
import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** Far above what any busy host takes. */
const THREAD_TIMEOUT_MS = 15_000;

const TEXT = `cprg: Cannot start a thread: the host is at its limit of processes
  hint: Raise kernel.pid_max, pids.max of the groups above, or \`ulimit -u\`
`;

/** Resolves, with the reason written to standard error, when there is no thread; else never. */
export async function noFirstThread(): Promise<null> {
  const first = stat("/").then(
    () => true,
    () => true,
  );
  const hasThread = await Promise.race([first, sleep(THREAD_TIMEOUT_MS, false, { ref: false })]);
  if (hasThread) await new Promise<never>(() => undefined);
  try {
    writeSync(2, TEXT);
  } catch {
    // A closed standard error takes nothing away from the exit code.
  }
  return null;
}
