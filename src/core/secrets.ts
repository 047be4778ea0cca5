/**
 * What a log must not show: texts that are held as secrets, as they are and as something encoded them
 * on the way. However many one tenant holds, texts without a secret stay readable.
 */

import { CprgError } from "./errors.ts";
import { secretForms } from "./secret-forms.ts";
import { HEAD_CHARS, TextIndex } from "./text-index.ts";

/** Shorter texts are no secrets: to hide every "1" would hide the log. */
export const SECRET_LENGTH_MIN = HEAD_CHARS;
/** Different secrets of one owner, and their characters: each is looked for in a dozen forms. */
export const OWNER_SECRETS_MAX = 1024;
export const OWNER_SECRET_CHARS_MAX = 512 * 1024;

/** What stands in place of a secret. */
export const REDACTED = "[redacted]";

/** Seconds after which an owner may try again: something of its own may have ended. */
const RETRY_SECONDS = 5;

/** The secrets that are alive now. */
export class SecretSet {
  readonly #held = new HeldTexts();
  readonly #owners = new Map<string, HeldTexts>();
  /** Held, and not looked for yet: what goes before anything is logged costs nothing. */
  readonly #fresh = new Set<string>();
  readonly #forms = new Map<string, ReadonlySet<string>>();
  readonly #index = new TextIndex();

  /**
   * Holds texts as secrets until the result is disposed of.
   *
   * @param owner whose they are, where how many are held is up to somebody who is not trusted
   * @throws CprgError `resource_exhausted` when the owner would hold too many
   */
  hold(texts: readonly string[], owner?: string): Disposable {
    const secrets = texts.filter(({ length }) => length >= SECRET_LENGTH_MIN);
    if (owner !== undefined) this.#own(owner, secrets);
    for (const text of secrets) {
      if (this.#held.add(text)) this.#fresh.add(text);
    }
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        for (const text of secrets) {
          if (this.#held.remove(text)) this.#forget(text);
        }
        if (owner !== undefined) this.#disown(owner, secrets);
      },
    };
  }

  /** A text without the secrets that are held now; nothing of one that takes too long to search. */
  redact(text: string): string {
    if (this.#held.size === 0 || text.length < SECRET_LENGTH_MIN) return text;
    this.#lookForFresh();
    const ranges = this.#index.find(text);
    if (ranges === null) return REDACTED;
    let redacted = "";
    let done = 0;
    for (const { start, end } of ranges) {
      redacted += text.slice(done, start) + REDACTED;
      done = end;
    }
    return redacted + text.slice(done);
  }

  #own(owner: string, secrets: readonly string[]): void {
    const own = this.#owners.get(owner) ?? new HeldTexts();
    for (const text of secrets) own.add(text);
    if (own.size > 0) this.#owners.set(owner, own);
    if (own.size <= OWNER_SECRETS_MAX && own.chars <= OWNER_SECRET_CHARS_MAX) return;
    this.#disown(owner, secrets);
    throw tooMany();
  }

  #disown(owner: string, secrets: readonly string[]): void {
    const own = this.#owners.get(owner);
    for (const text of secrets) own?.remove(text);
    if (own?.size === 0) this.#owners.delete(owner);
  }

  #lookForFresh(): void {
    for (const text of this.#fresh) {
      const forms = secretForms(text, SECRET_LENGTH_MIN);
      this.#forms.set(text, forms);
      for (const form of forms) this.#index.add(form);
    }
    this.#fresh.clear();
  }

  #forget(text: string): void {
    if (this.#fresh.delete(text)) return;
    for (const form of this.#forms.get(text) ?? []) this.#index.remove(form);
    this.#forms.delete(text);
  }
}

/** Texts, each counted as often as it is held. */
class HeldTexts {
  readonly #counts = new Map<string, number>();
  #chars = 0;

  /** Different ones. */
  get size(): number {
    return this.#counts.size;
  }

  /** Characters of the different ones. */
  get chars(): number {
    return this.#chars;
  }

  /** Whether it was not held before. */
  add(text: string): boolean {
    const count = this.#counts.get(text) ?? 0;
    this.#counts.set(text, count + 1);
    if (count === 0) this.#chars += text.length;
    return count === 0;
  }

  /** Whether it is not held any more. */
  remove(text: string): boolean {
    const count = this.#counts.get(text) ?? 0;
    if (count > 1) this.#counts.set(text, count - 1);
    if (count !== 1) return false;
    this.#counts.delete(text);
    this.#chars -= text.length;
    return true;
  }
}

function tooMany(): CprgError {
  return new CprgError(
    "resource_exhausted",
    `Cannot use env: with it more than ${OWNER_SECRETS_MAX} different values of variables, or ${OWNER_SECRET_CHARS_MAX} characters of them, would be held for one tenant`,
    {
      reason: "TENANT_SECRETS",
      field: "env",
      hint: "Give fewer variables, or end sandboxes and programs that have many",
      retryAfterSeconds: RETRY_SECONDS,
    },
  );
}
