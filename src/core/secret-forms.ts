/** How a secret looks when something encoded it on the way: in JSON, a URL, base64 or hexadecimal. */

/** What neither JSON nor a URL writes in another way. */
const PLAIN = /^[\w.~-]*$/;

/** Every way in which a text may stand in a line; short ones may be anything. */
export function secretForms(text: string, lengthMin: number): ReadonlySet<string> {
  const bytes = Buffer.from(text, "utf8");
  const hex = bytes.toString("hex");
  const escaped = PLAIN.test(text) ? [] : escapedForms(text);
  const forms = [text, ...escaped, hex, hex.toUpperCase(), ...base64Forms(bytes)];
  return new Set(forms.filter(({ length }) => length >= lengthMin));
}

function escapedForms(text: string): string[] {
  const url = encodeURIComponent(text.toWellFormed());
  const json = jsonForm(text);
  return [
    json,
    jsonForm(json),
    url,
    url.replaceAll("%20", "+"),
    url.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
  ];
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
    const padded = Buffer.alloc(before + bytes.length);
    padded.set(bytes, before);
    const from = before === 0 ? 0 : before + 1;
    const end = Math.floor((padded.length * 8) / 6);
    return [
      padded.toString("base64").slice(from, end),
      padded.toString("base64url").slice(from, end),
    ];
  });
}
