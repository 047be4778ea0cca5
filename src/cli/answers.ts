/**
 * The server's answers as far as commands look into them. Whatever a server sends is checked where
 * it is used: a field of another type reads as missing.
 */

/** A JSON object. */
export type Answer = Readonly<Record<string, unknown>>;

/** An object, or one without fields. */
export function asAnswer(value: unknown): Answer {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Answer)
    : {};
}

/** The objects of a list. */
export function asAnswers(value: unknown): readonly Answer[] {
  return Array.isArray(value) ? value.map(asAnswer) : [];
}

/** Text, or `missing`. */
export function asText(value: unknown, missing = ""): string {
  return typeof value === "string" ? value : missing;
}

/** A number, or null. */
export function asNumber(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
