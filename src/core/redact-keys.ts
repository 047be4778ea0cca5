/**
 * Takes keys out of text that goes to logs and clients. Keys that were made here have a form that is
 * found wherever it stands, cut or escaped: in percent (RFC 3986), JSON, JavaScript or HTML form,
 * and escaped twice.
 */

const SHOWN = "[key]";
/** More digits than are ever shown of a key. */
const DIGITS_MIN = 8;

/** Every way in which a character may be written. */
function written(character: string): string {
  const hex = character.charCodeAt(0).toString(16);
  const code = character.charCodeAt(0);
  return `(?:${character}|%(?:25)*${hex}|\\\\+u00${hex}|\\\\+x${hex}|&#0*${code};|&#x0*${hex};)`;
}

const START = [..."cprg_"].map(written).join("");
const DIGIT =
  "(?:[0-9a-f]|%(?:25)*[346][0-9a-f]|\\\\+u00[346][0-9a-f]|\\\\+x[346][0-9a-f]|&#0*\\d{2,3};|&#x0*[346][0-9a-f];)";
const MADE_KEY = new RegExp(`${START}${DIGIT}{${DIGITS_MIN},}`, "gi");

/**
 * A text without keys.
 *
 * @param secrets further texts to take out: the key that a request presented
 */
export function redactKeys(text: string, secrets: readonly string[] = []): string {
  let redacted = text.replaceAll(MADE_KEY, SHOWN);
  for (const secret of secrets) {
    for (const form of new Set([secret, encodeURIComponent(secret), jsonForm(secret)])) {
      if (form !== "") redacted = redacted.replaceAll(form, SHOWN);
    }
  }
  return redacted;
}

function jsonForm(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
