// A file outside of the store that says which programs ran. A sandbox sees host directories read-only,
// but a fifo in one of them can be written to: it is no part of the file system that it lies in.

import { chmodSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Home } from "./cprg.ts";
import { until } from "./until.ts";

/** Where programs find the fifo. */
export const WITNESS_INSIDE = "/witness/fifo";

/** A program that tells the witness its first argument, then works for a moment. */
export const WITNESSED = [
  "/bin/sh",
  "-c",
  `echo "$1" > ${WITNESS_INSIDE}; echo "$1"; sleep 0.05`,
  "sh",
];

/** What programs have told. */
export interface Witness extends AsyncDisposable {
  /** For `--binds`. */
  readonly bind: string;
  /** How often each mark was told, once everything that was told before is in. */
  counts(): Promise<Map<string, number>>;
}

/** Opens a witness beneath a home. Its file lives as long as the home, however the server ends. */
export async function openWitness(home: Home): Promise<Witness> {
  const folder = join(home.path, "witness");
  const file = join(home.path, "witness.txt");
  const fifo = join(folder, "fifo");
  mkdirSync(folder, { mode: 0o755 });
  const made = Bun.spawnSync(["mkfifo", fifo]);
  if (made.exitCode !== 0) throw new Error("mkfifo failed");
  chmodSync(fifo, 0o622);
  // Open for both, so that no writer has to wait and the last one leaves no end of file.
  const script = 'exec cat <>"$0" >>"$1"';
  const reader = Bun.spawn(["/bin/sh", "-c", script, fifo, file], { stdout: "ignore" });
  const tell = async (text: string): Promise<void> => {
    await Bun.spawn(["/bin/sh", "-c", 'echo "$1" >"$0"', fifo, text]).exited;
  };
  const lines = (): string[] => readFileSync(file, "utf8").split("\n").slice(0, -1);
  return {
    bind: `${folder}:/witness`,
    async counts() {
      const last = `until ${crypto.randomUUID()}`;
      await tell(last);
      await until(() => (lines().includes(last) ? true : null), { what: "the witness heard all" });
      const counts = new Map<string, number>();
      for (const line of lines()) counts.set(line, (counts.get(line) ?? 0) + 1);
      return counts;
    },
    [Symbol.asyncDispose]: async () => {
      reader.kill("SIGKILL");
      await reader.exited;
    },
  };
}
