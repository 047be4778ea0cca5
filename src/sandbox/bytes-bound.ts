/**
 * How much may come out of a sandbox at once. A hole in a file costs a program nothing and the host
 * its whole length, so what counts is the length, and the bound is what its disk can hold.
 */

import { statfsSync } from "node:fs";
import { CprgError } from "../core/errors.ts";

/** What may come out besides, such as files of the host that are seen inside. */
export const OUT_SLACK_BYTES = 16 * 1024 * 1024;

/** Adds up what comes out. */
export class BytesBound {
  readonly #op: string;
  readonly #mostBytes: number;
  #bytes = 0;

  /** @param op a verb phrase for the error */
  constructor(mostBytes: number, op: string) {
    this.#mostBytes = mostBytes;
    this.#op = op;
  }

  /**
   * What the disk of a sandbox can hold, and a little more.
   *
   * @param workspaceFd on the sandbox's disk, whose size is `limits.disk_mb`
   */
  static ofDisk(workspaceFd: number, op: string): BytesBound {
    const disk = statfsSync(`/proc/self/fd/${workspaceFd}`);
    return new BytesBound(disk.blocks * disk.bsize + OUT_SLACK_BYTES, op);
  }

  /** @throws CprgError `resource_exhausted` when these bytes are too many */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#mostBytes) return;
    throw new CprgError(
      "resource_exhausted",
      `Cannot ${this.#op.slice(0, 256)}: its files are longer than ${this.#mostBytes} bytes together`,
      {
        reason: "OUT_BYTES",
        hint: "Holes in files count, as do names of one file; raise limits.disk_mb, or take out less",
      },
    );
  }
}
