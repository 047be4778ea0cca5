import { expect, test } from "bun:test";
import { redactKeys } from "../../../src/core/redact-keys.ts";

const KEY = `cprg_${"0123456789abcdef".repeat(4)}`;
const each = (form: (code: number, hex: string) => string) =>
  [...KEY].map((c) => form(c.charCodeAt(0), c.charCodeAt(0).toString(16))).join("");

test.each([
  ["plain", KEY],
  ["in capitals", KEY.toUpperCase()],
  ["cut", KEY.slice(0, 20)],
  ["in percent form", each((_, hex) => `%${hex}`)],
  ["in percent form twice", each((_, hex) => `%25${hex}`)],
  ["in JSON form", each((_, hex) => `\\u00${hex}`)],
  ["in JSON form twice", each((_, hex) => `\\\\u00${hex}`)],
  ["in JavaScript form", each((_, hex) => `\\x${hex}`)],
  ["in HTML form", each((code) => `&#${code};`)],
  ["in HTML form, hexadecimal", each((_, hex) => `&#x${hex};`)],
  ["in part escaped", KEY.replace("p", "%70").replace("1", "\\u0031")],
])("a made key is taken out %s", (_, text) => {
  expect(redactKeys(`before ${text} after ${text}`)).toBe("before [key] after [key]");
});

test("what is no key stays", () => {
  const text = "cprg_0123 is shown, cprg_jobs_total and %63 too";
  expect(redactKeys(text)).toBe(text);
});

test("a secret that is named is taken out in its usual forms", () => {
  const secret = 'a/b+"c=';
  const text = `${secret} ${encodeURIComponent(secret)} ${JSON.stringify(secret)}`;
  expect(redactKeys(text, [secret, ""])).toBe('[key] [key] "[key]"');
});
