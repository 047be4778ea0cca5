// Looking for a secret where it must not be: in files, and in what other processes show of themselves.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Searches for one secret, as it is and as JSON, URLs and base64 write it. */
export class SecretSearch {
  /** Made anew; it has characters that each form writes in another way. */
  readonly secret = `v "${crypto.randomUUID()}"/é`;
  readonly #forms: readonly Buffer[];

  constructor() {
    const base64 = Buffer.from(this.secret).toString("base64").replace(/=+$/, "").slice(0, -1);
    this.#forms = [
      this.secret,
      JSON.stringify(this.secret).slice(1, -1),
      encodeURIComponent(this.secret),
      base64,
      base64.replaceAll("+", "-").replaceAll("/", "_"),
    ].map((form) => Buffer.from(form));
  }

  isIn(bytes: Uint8Array): boolean {
    return this.#forms.some((form) => Buffer.from(bytes).includes(form));
  }

  /** Environments and command lines of processes that hold it, as `PID/NAME`. */
  inProcesses(): readonly string[] {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .flatMap((pid) =>
        ["environ", "cmdline"].flatMap((name) => {
          try {
            return this.isIn(readFileSync(`/proc/${pid}/${name}`)) ? [`${pid}/${name}`] : [];
          } catch {
            return []; // It has ended.
          }
        }),
      );
  }

  /** Files beneath a directory that hold it; a socket or a fifo holds nothing. */
  inFiles(directory: string): readonly string[] {
    return readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name))
      .filter((path) => {
        try {
          return this.isIn(readFileSync(path));
        } catch {
          return false; // Gone, or of the kernel's.
        }
      });
  }
}
