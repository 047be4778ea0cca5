/** The secrets that a request carries, so that no answer and no log repeats them. */

import type { Context } from "hono";
import type { AppEnv } from "./env.ts";

/** Shorter texts are no keys, and taking them out would garble what they stand in. */
const SECRET_CHARS_MIN = 8;

/** What was sent as a key, in the header or the query. */
export function presentedSecrets(c: Context<AppEnv>): readonly string[] {
  const header = c.req
    .header("authorization")
    ?.replace(/^\S+ +/, "")
    .trim();
  return [header, c.req.query("key")].filter(
    (secret): secret is string => secret !== undefined && secret.length >= SECRET_CHARS_MIN,
  );
}
