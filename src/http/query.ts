/** Query parameters, as strict as bodies: no unknown name, none twice. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";

/** @throws CprgError `invalid_argument` for a name that is not among `names`, or is there twice */
export function readQuery(
  c: Context<AppEnv>,
  names: readonly string[],
): Readonly<Record<string, string | undefined>> {
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
