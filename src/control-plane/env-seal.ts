/**
 * Environments of tasks that wait: AES-256-GCM with a key of the data directory, so that neither the
 * database nor a copy of it says what they are. A sealed one belongs to its task and opens for no other.
 */

import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from "node:crypto";
import { CprgError } from "../core/errors.ts";

const CIPHER = "aes-256-gcm";
/** Of the form of what is sealed; another one has another number. */
const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Variables by name. */
export type Env = Readonly<Record<string, string>>;

/** Seals and opens. */
export class EnvSeal {
  readonly #key: KeyObject;

  /** @param key 32 bytes */
  constructor(key: KeyObject) {
    this.#key = key;
  }

  /** Null when there is nothing to seal. */
  seal(taskId: string, env: Env): Uint8Array | null {
    if (Object.keys(env).length === 0) return null;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(bound(taskId));
    const text = Buffer.concat([cipher.update(JSON.stringify(env), "utf8"), cipher.final()]);
    return Buffer.concat([Buffer.of(VERSION), nonce, cipher.getAuthTag(), text]);
  }

  /** @throws CprgError `data_loss` when another key, or another task, sealed it */
  open(taskId: string, sealed: Uint8Array | null): Env {
    if (sealed === null) return {};
    const bytes = Buffer.from(sealed);
    const nonce = bytes.subarray(1, 1 + NONCE_BYTES);
    const tag = bytes.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
    try {
      if (bytes[0] !== VERSION) throw new Error(`form ${bytes[0]}`);
      const cipher = createDecipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
      cipher.setAAD(bound(taskId));
      cipher.setAuthTag(tag);
      const text = bytes.subarray(1 + NONCE_BYTES + TAG_BYTES);
      return JSON.parse(Buffer.concat([cipher.update(text), cipher.final()]).toString("utf8"));
    } catch (cause) {
      throw new CprgError("data_loss", "Cannot open the environment: another key sealed it", {
        reason: "ENV_SEALED",
        hint: "The key is task-env.key of the data directory that the task was submitted to",
        cause,
      });
    }
  }
}

function bound(taskId: string): Buffer {
  return Buffer.from(`cprg task ${taskId}`, "utf8");
}
