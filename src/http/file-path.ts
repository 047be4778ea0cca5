/** The path of a file in an address: what comes after `/files/`. */

import type { Context } from "hono";
import { invalid } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";

/** What no part before the path can hold: ids have no slash, encoded or not. */
const BEFORE = /^\/[^/]+\/[^/]+\/[^/]+\/[^/]+\//;

/**
 * From the address as it was sent: what the router decodes, it decodes in part. The parts before it
 * may be encoded too, and are then longer than what they say.
 *
 * @throws CprgError `invalid_argument` for what is no UTF-8
 */
export function filePath(c: Context<AppEnv>): string {
  try {
    return decodeURIComponent(new URL(c.req.url).pathname.replace(BEFORE, ""));
  } catch {
    throw invalid("path", "Cannot use path: it is no UTF-8", "Encode names as UTF-8, then in %XX");
  }
}
