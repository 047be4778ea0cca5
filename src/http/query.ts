/** Query parameters, as strict as bodies: no unknown name, none twice, numbers within their range. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";

/** The parameters of a request. */
export type Query = Readonly<Record<string, string | undefined>>;

/** @throws CprgError `invalid_argument` for a name that is not among `names`, or is there twice */
export function readQuery(c: Context<AppEnv>, names: readonly string[]): Query {
  const query: Record<string, string> = {};
  for (const [name, values] of Object.entries(c.req.queries())) {
    const shown = name.slice(0, 64);
    if (!names.includes(name)) {
      const known = names.length === 0 ? "This path takes none" : `Known: ${names.join(", ")}`;
      throw invalid(shown, `Cannot use parameter "${shown}": unknown name`, known);
    }
    if (values.length > 1) throw invalid(name, `Cannot use parameter "${name}": it is there twice`);
    query[name] = values[0] ?? "";
  }
  return query;
}

/**
 * A number in decimal digits.
 *
 * @throws CprgError `invalid_argument` for anything else, or beyond the range
 */
export function readNumber(
  query: Query,
  name: string,
  range: {
    readonly min: number;
    readonly max: number;
    readonly default: number;
    fraction?: boolean;
  },
): number {
  const text = query[name];
  if (text === undefined) return range.default;
  const form = range.fraction === true ? /^\d{1,16}(?:\.\d{1,6})?$/ : /^\d{1,16}$/;
  const value = form.test(text) ? Number(text) : Number.NaN;
  if (value >= range.min && value <= range.max) return value;
  const kind = range.fraction === true ? "a number" : "a whole number";
  throw invalid(
    name,
    `Cannot use ${name} "${text.slice(0, 64)}": not ${kind} from ${range.min} to ${range.max}`,
  );
}
