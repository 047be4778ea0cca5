import { describe, expect, test } from "bun:test";
import { REDACTED, SECRET_LENGTH_MIN, SECRETS_MAX, SecretSet } from "../../../src/core/secrets.ts";

/** Quotes, a line break, a space, a slash, a plus, a percent sign, beyond ASCII. */
const secret = 'p"a\\s\ns/w+o r%dé🦊<x>';

const encodings: readonly [string, (text: string) => string][] = [
  ["as it is", (text) => text],
  ["in JSON", (text) => JSON.stringify({ text })],
  ["in JSON within JSON", (text) => JSON.stringify(JSON.stringify({ text }))],
  ["in a URL", (text) => `https://x/?q=${encodeURIComponent(text)}&z`],
  [
    "in a URL with small digits",
    (text) => encodeURIComponent(text).replace(/%../g, (c) => c.toLowerCase()),
  ],
  ["in a form", (text) => encodeURIComponent(text).replaceAll("%20", "+")],
  ["in base64", (text) => Buffer.from(text).toString("base64")],
  ["in base64 behind one byte", (text) => Buffer.from(`u${text}:tail`).toString("base64")],
  ["in base64 behind two bytes", (text) => Buffer.from(`us${text}t`).toString("base64")],
  ["in base64 behind three bytes", (text) => Buffer.from(`usr${text}`).toString("base64")],
  ["in base64url", (text) => Buffer.from(`ab>?${text}`).toString("base64url")],
  ["in hexadecimal", (text) => Buffer.from(text).toString("hex")],
  ["in capital hexadecimal", (text) => Buffer.from(text).toString("hex").toUpperCase()],
];

describe("redact()", () => {
  test.each(encodings)("hides a secret %s", (_, encode) => {
    const secrets = new SecretSet();
    const line = `before ${encode(secret)} after`;
    expect(secrets.redact(line)).toBe(line);
    secrets.hold([secret]);
    const redacted = secrets.redact(line);
    expect(redacted).toContain(REDACTED);
    expect(redacted).toStartWith("before ");
    expect(redacted).toEndWith(" after");
    // What is left at the ends of base64 depends on the neighbours and says nothing of the middle.
    expect(redacted.replace(REDACTED, "").length).toBeLessThan(line.length - secret.length + 4);
  });

  test("hides every occurrence, and a longer secret whole", () => {
    const secrets = new SecretSet();
    secrets.hold(["12345678", "12345678-and-more"]);
    expect(secrets.redact("12345678 12345678-and-more 12345678")).toBe(
      `${REDACTED} ${REDACTED} ${REDACTED}`,
    );
  });

  test("leaves short texts, and shows a secret again when nobody holds it", () => {
    const secrets = new SecretSet();
    const short = "x".repeat(SECRET_LENGTH_MIN - 1);
    secrets.hold([short, ""]);
    expect(secrets.redact(short)).toBe(short);
    const first = secrets.hold(["a-secret-text"]);
    const second = secrets.hold(["a-secret-text"]);
    first[Symbol.dispose]();
    first[Symbol.dispose]();
    expect(secrets.redact("a-secret-text")).toBe(REDACTED);
    second[Symbol.dispose]();
    expect(secrets.redact("a-secret-text")).toBe("a-secret-text");
  });

  test("with more secrets than it can look for it shows nothing", () => {
    const secrets = new SecretSet();
    secrets.hold(Array.from({ length: SECRETS_MAX + 1 }, (_, index) => `secret-number-${index}`));
    expect(secrets.redact("harmless")).toBe(REDACTED);
  });
});
