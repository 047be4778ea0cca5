import { describe, expect, test } from "bun:test";
import {
  OWNER_SECRET_CHARS_MAX,
  OWNER_SECRETS_MAX,
  REDACTED,
  SECRET_LENGTH_MIN,
  SecretSet,
} from "../../../src/core/secrets.ts";

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

  test("parts that overlap go as one", () => {
    const secrets = new SecretSet();
    secrets.hold(["abcdefgh", "efghijkl", "ijklmnop"]);
    expect(secrets.redact("<abcdefghijklmnop>")).toBe(`<${REDACTED}>`);
    expect(secrets.redact("abcdefghabcdefgh")).toBe(`${REDACTED}${REDACTED}`);
  });

  test("shows nothing of a text that takes too long to search, and all of others", () => {
    const secrets = new SecretSet();
    secrets.hold(Array.from({ length: 1000 }, (_, index) => `${"a".repeat(200)}${index}`));
    expect(secrets.redact("a".repeat(16_000))).toBe(REDACTED);
    expect(secrets.redact("harmless aaaaaaaa")).toBe("harmless aaaaaaaa");
    expect(secrets.redact(`xaaaaaaaaa${"a".repeat(200)}7y`)).not.toContain("7");
  });

  test("what is held and released before anything is said is not looked for", () => {
    const secrets = new SecretSet();
    secrets.hold(["held-before"])[Symbol.dispose]();
    const again = secrets.hold(["held-before"]);
    expect(secrets.redact("held-before")).toBe(REDACTED);
    again[Symbol.dispose]();
    expect(secrets.redact("held-before")).toBe("held-before");
  });
});

describe("an owner", () => {
  const many = (count: number, prefix = "secret") =>
    Array.from({ length: count }, (_, index) => `${prefix}-number-${index}`);

  test("with as many secrets as it may hold blinds no text, and none of them is shown", () => {
    const secrets = new SecretSet();
    secrets.hold(["the key of the operator"]);
    const texts = many(OWNER_SECRETS_MAX);
    secrets.hold(texts, "a");
    secrets.hold(many(OWNER_SECRETS_MAX, "other"), "b");
    expect(secrets.redact("harmless")).toBe("harmless");
    for (const text of [...texts, "the key of the operator"]) {
      expect(secrets.redact(`x ${text}`)).toStartWith(`x ${REDACTED}`);
    }
  });

  test.each([
    ["too many secrets", many(OWNER_SECRETS_MAX + 1)],
    ["too long ones", [..."abcdefghi"].map((letter) => letter.repeat(OWNER_SECRET_CHARS_MAX / 8))],
  ])("with %s is refused, and holds none of them", (_, texts) => {
    const secrets = new SecretSet();
    const hold = () => secrets.hold(texts, "a");
    expect(hold).toThrow(
      expect.objectContaining({
        code: "resource_exhausted",
        reason: "TENANT_SECRETS",
        field: "env",
      }),
    );
    expect(secrets.redact(texts[0] ?? "")).toBe(texts[0] ?? "");
    secrets.hold(texts.slice(1), "a");
    expect(hold).toThrow();
    secrets.hold(texts.slice(1), "b");
    secrets.hold(texts);
  });

  test("may hold the same secrets as often as it likes, and others when those are released", () => {
    const secrets = new SecretSet();
    const texts = many(OWNER_SECRETS_MAX);
    const holds = [secrets.hold(texts, "a"), secrets.hold(texts, "a")];
    holds[0]?.[Symbol.dispose]();
    expect(() => secrets.hold(["one-secret-more"], "a")).toThrow();
    holds[1]?.[Symbol.dispose]();
    secrets.hold(many(OWNER_SECRETS_MAX, "next"), "a");
    expect(secrets.redact(texts[0] ?? "")).toBe(texts[0] ?? "");
  });
});
