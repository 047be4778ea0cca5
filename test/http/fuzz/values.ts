// Values made from JSON Schema: such that fit it, and such that nobody should send.

import type { Random } from "./random.ts";

/** A schema, as far as it is read here. */
// biome-ignore lint/suspicious/noExplicitAny: schemas are data of every shape
export type Schema = Readonly<Record<string, any>>;

const WORDS = ["a", "b1", "x_y", "Zeta", "n"] as const;

const HOSTILE: readonly unknown[] = [
  null,
  true,
  -1,
  0.5,
  1e308,
  "",
  "\u0000",
  "\ud800",
  "../../etc/passwd",
  "' OR 1=1 --",
  "😀".repeat(50),
  "x".repeat(5000),
  [],
  {},
  [[[[]]]],
  JSON.parse(`{"__proto__":1,"constructor":{}}`),
  Array.from({ length: 200 }, (_, index) => index),
];

/** A value that nobody should send. */
export function hostileValue(random: Random): unknown {
  return random.pick(HOSTILE);
}

/** A value of a schema; optional parts come and go. */
export function sampleOf(schema: Schema, random: Random): unknown {
  if (schema["examples"] !== undefined) return random.pick(schema["examples"]);
  if (schema["enum"] !== undefined) return random.pick(schema["enum"]);
  if (schema["anyOf"] !== undefined) return sampleOf(random.pick(schema["anyOf"]), random);
  switch (schema["type"]) {
    case "string":
      return schema["pattern"]?.startsWith("^[^=]+=") ? "team=x" : random.pick(WORDS);
    case "integer":
      return wholeOf(schema, random);
    case "number":
      return wholeOf({ maximum: 50, minimum: 1, ...schema }, random);
    case "boolean":
      return random.chance(0.5);
    case "null":
      return null;
    case "array":
      return Array.from({ length: random.whole(3) }, () => sampleOf(schema["items"] ?? {}, random));
    case "object":
      return objectOf(schema, random);
    default:
      return random.pick(WORDS);
  }
}

function wholeOf({ minimum = 0, maximum = 1000 }: Schema, random: Random): number {
  return minimum + random.whole(Math.min(maximum - minimum, 1000));
}

function objectOf(schema: Schema, random: Random): Record<string, unknown> {
  const { properties = {}, required = [], additionalProperties } = schema;
  const value: Record<string, unknown> = {};
  for (const [name, property] of Object.entries<Schema>(properties)) {
    if (required.includes(name) || random.chance(0.3)) value[name] = sampleOf(property, random);
  }
  if (typeof additionalProperties === "object" && Object.keys(properties).length === 0) {
    for (let left = random.whole(3); left > 0; left -= 1) {
      value[random.pick(WORDS)] = sampleOf(additionalProperties, random);
    }
  }
  return value;
}

/** A copy of a JSON object in which one place, wherever it is, is something else. */
export function spoilt(value: unknown, random: Random): unknown {
  if (typeof value !== "object" || value === null || random.chance(0.2))
    return hostileValue(random);
  if (Array.isArray(value)) {
    if (value.length === 0) return [hostileValue(random)];
    const at = random.whole(value.length - 1);
    return value.map((item, index) => (index === at ? spoilt(item, random) : item));
  }
  const entries = Object.entries(value);
  if (entries.length === 0 || random.chance(0.2)) return { ...value, unknown: 1 };
  const [name, item] = random.pick(entries);
  return { ...value, [name]: spoilt(item, random) };
}
