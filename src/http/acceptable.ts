/** Refuses a request whose `Accept` header fits nothing that its route answers with (RFC 9110). */

import type { MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";
import { findRoute, type RouteDoc } from "./route-doc.ts";

/** Characters of a header that are looked at. */
const ACCEPT_CHARS_MAX = 4096;

/** @throws CprgError with reason NOT_ACCEPTABLE, before anything is done */
export function requireAcceptable(routes: readonly RouteDoc[]): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const accept = c.req.header("accept");
    if (accept !== undefined) {
      const route = findRoute(routes, c.req.method, c.req.path);
      const types = route === null ? [] : typesOf(route);
      if (types.length > 0 && !types.some((type) => accepts(accept, type))) {
        throw notAcceptable(types);
      }
    }
    await next();
  };
}

/** Media types of a route's successes, without parameters. */
function typesOf({ answers }: RouteDoc): string[] {
  const types = Object.values(answers).flatMap(({ content = {} }) => Object.keys(content));
  return [...new Set(types.map((type) => bare(type)))];
}

/** Whether an `Accept` header allows a type; one that cannot be read allows all. */
export function accepts(header: string, type: string): boolean {
  const [main] = type.split("/");
  const wanted = [type, `${main}/*`, "*/*"];
  const ranges = header.slice(0, ACCEPT_CHARS_MAX).split(",").map(parseRange);
  const readable = ranges.filter(({ range }) => range.includes("/"));
  if (readable.length === 0) return true;
  // The most specific range decides.
  for (const range of wanted) {
    const found = readable.find((one) => one.range === range);
    if (found !== undefined) return found.q > 0;
  }
  return false;
}

function parseRange(text: string): { range: string; q: number } {
  const [range = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  const quality = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  return { range, q: quality === undefined ? 1 : Number(quality) || 0 };
}

function bare(type: string): string {
  return type.split(";")[0]?.trim() ?? type;
}

function notAcceptable(types: readonly string[]): CprgError {
  return new CprgError("invalid_argument", "Cannot answer: no accepted type is one of this path", {
    reason: "NOT_ACCEPTABLE",
    field: "Accept",
    hint: `Accept ${types.join(" or ")}`,
  });
}
