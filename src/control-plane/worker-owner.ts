/** Whom a worker's id belongs to: whoever registered it first (proto/PROTOCOL.md section 7). */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { CprgError } from "../core/errors.ts";

/** What a worker shows for its id. */
export interface Shown {
  readonly secret: string | undefined;
  /** Of the token that it comes with. */
  readonly tokenHash: string;
  /** Whether it lists `worker.secret`. */
  readonly canKeepSecret: boolean;
}

/** The owner of one id. */
export class WorkerOwner {
  readonly #id: string;
  /** Of the token that it came with first. */
  readonly #tokenHash: string;
  /** Of the secret that was given last; null before the first. */
  #secretHash: Buffer | null = null;
  #wasPresented = false;

  constructor(id: string, tokenHash: string) {
    this.#id = id;
    this.#tokenHash = tokenHash;
  }

  /**
   * Lets the owner in, and nobody else. Headers can be lost: until a secret was presented once, each
   * registration with the first token is given a new one.
   *
   * @returns a secret to give, if any
   * @throws CprgError `permission_denied` ID_TAKEN
   */
  admit({ secret, tokenHash, canKeepSecret }: Shown): string | undefined {
    const hash = this.#secretHash;
    if (secret !== undefined && hash !== null) {
      if (!timingSafeEqual(hashOf(secret), hash)) throw this.#taken();
      this.#wasPresented = true;
      return undefined;
    }
    if (this.#wasPresented || tokenHash !== this.#tokenHash) throw this.#taken();
    if (!canKeepSecret) return undefined;
    const given = randomBytes(32).toString("base64url");
    this.#secretHash = hashOf(given);
    return given;
  }

  #taken(): CprgError {
    const message = `${this.#id} belongs to another worker`;
    return new CprgError("permission_denied", message, { reason: "ID_TAKEN" });
  }
}

/** What is kept of a secret or a token. */
export function hashOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}
