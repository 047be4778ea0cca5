/**
 * Space on the disk of the store that nothing uses, so that ends of jobs can still be written, and what
 * is past its retention still be removed, when the rest of the disk is full.
 */

import { closeSync, constants, fstatSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { geteuid } from "node:process";

/** Room for a dozen ends of jobs, which share commits when they come together. */
export const RESERVE_BYTES = 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;

const FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

/** One file of a fixed size, held or given up. */
export class SpaceReserve {
  readonly #path: string;
  #isHeld = false;

  /** @param path of the file; what is there must be ours or nothing */
  constructor(path: string) {
    this.#path = path;
  }

  /** Whether the space is there to be given up. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Takes the space, unless it is taken. False when the disk has not so much left. */
  hold(): boolean {
    this.#isHeld ||= this.#take();
    return this.#isHeld;
  }

  /** Gives the space back to the disk; false when it was not held. */
  release(): boolean {
    if (!this.#isHeld) return false;
    this.#isHeld = false;
    rmSync(this.#path, { force: true });
    return true;
  }

  #take(): boolean {
    let file: number | null = null;
    try {
      file = openSync(this.#path, FLAGS, 0o600);
      const stats = fstatSync(file);
      if (!stats.isFile() || stats.uid !== geteuid?.() || stats.size > RESERVE_BYTES) return false;
      fill(file, stats.size);
      return true;
    } catch {
      if (file !== null) rmSync(this.#path, { force: true });
      return false;
    } finally {
      if (file !== null) closeSync(file);
    }
  }
}

/** Bytes that a file system cannot leave out or make smaller. */
function fill(file: number, fromBytes: number): void {
  for (let at = fromBytes; at < RESERVE_BYTES; ) {
    const chunk = new Uint8Array(Math.min(CHUNK_BYTES, RESERVE_BYTES - at));
    at += writeSync(file, crypto.getRandomValues(chunk));
  }
  fsyncSync(file);
}
