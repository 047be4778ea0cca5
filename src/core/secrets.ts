/**
 * What a log must not show: texts that are held as secrets, and how they look when something encoded
 * them on the way: in JSON, in a URL, in base64 or in hexadecimal.
 */

/** Shorter texts are no secrets: to hide every "1" would hide the log. */
export const SECRET_LENGTH_MIN = 8;
/** Secrets that are held at once; with more, {@link SecretSet.redact} gives nothing away at all. */
export const SECRETS_MAX = 1024;

/** What stands in place of a secret. */
export const REDACTED = "[redacted]";

/** The secrets that are alive now. */
export class SecretSet {
  /** How often each is held. */
  readonly #held = new Map<string, number>();
  #forms: readonly string[] | null = null;

  /** Holds texts as secrets until the result is disposed of. */
  hold(texts: readonly string[]): Disposable {
    const secrets = texts.filter(({ length }) => length >= SECRET_LENGTH_MIN);
    for (const text of secrets) this.#count(text, 1);
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        for (const text of secrets) this.#count(text, -1);
      },
    };
  }

  /** A text without the secrets that are held now; without anything when they are too many. */
  redact(text: string): string {
    if (this.#held.size === 0) return text;
    if (this.#held.size > SECRETS_MAX) return REDACTED;
    this.#forms ??= allForms([...this.#held.keys()]);
    let redacted = text;
    for (const form of this.#forms) {
      if (redacted.includes(form)) redacted = redacted.replaceAll(form, REDACTED);
    }
    return redacted;
  }

  #count(text: string, change: 1 | -1): void {
    const count = (this.#held.get(text) ?? 0) + change;
    if (count > 0) this.#held.set(text, count);
    else this.#held.delete(text);
    this.#forms = null;
  }
}

/** Longest first, so that a secret within another does not leave the rest of it. */
function allForms(secrets: readonly string[]): readonly string[] {
  const forms = new Set(secrets.flatMap(formsOf));
  return [...forms].sort((a, b) => b.length - a.length);
}

/** Every way in which a text may stand in a line. */
function formsOf(text: string): string[] {
  const bytes = Buffer.from(text, "utf8");
  const url = encodeURIComponent(text.toWellFormed());
  const hex = bytes.toString("hex");
  return [
    text,
    jsonForm(text),
    jsonForm(jsonForm(text)),
    url,
    url.replaceAll("%20", "+"),
    url.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
    hex,
    hex.toUpperCase(),
    ...base64Forms(bytes),
  ].filter(({ length }) => length >= SECRET_LENGTH_MIN);
}

function jsonForm(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/**
 * A text within others is one of three in base64, by where it begins in a group of three bytes; the
 * characters at both ends that depend on its neighbours are left out.
 */
function base64Forms(bytes: Uint8Array): string[] {
  return [0, 1, 2].flatMap((before) => {
    const padded = Buffer.concat([new Uint8Array(before), bytes]);
    const whole = padded.toString("base64").replace(/=+$/, "");
    const from = before === 0 ? 0 : before + 1;
    const inner = whole.slice(from, Math.floor((padded.length * 8) / 6));
    return [inner, inner.replaceAll("+", "-").replaceAll("/", "_")];
  });
}
