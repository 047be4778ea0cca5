/** How many requests were answered, by route and status: the paths that are counted are ours. */

import type { MiddlewareHandler } from "hono";
import type { AppEnv } from "./env.ts";

/** Label of requests that match no route: their paths are the clients', and without bound. */
const NO_ROUTE = "none";

/** One count. */
export interface RequestCount {
  readonly method: string;
  readonly route: string;
  readonly status: number;
  readonly count: number;
}

/** Counts answers. */
export class RequestCounts {
  readonly #counts = new Map<string, RequestCount>();

  add(answer: Omit<RequestCount, "count">): void {
    const key = JSON.stringify([answer.method, answer.route, answer.status]);
    const count = (this.#counts.get(key)?.count ?? 0) + 1;
    this.#counts.set(key, { ...answer, count });
  }

  all(): readonly RequestCount[] {
    return [...this.#counts.values()];
  }
}

/** @param routeOf the route of a request as it is described, null when there is none */
export function countRequests(
  counts: RequestCounts,
  routeOf: (method: string, path: string) => string | null,
): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await next();
    const { method, path } = c.req;
    const route = routeOf(method, path);
    const known = { method: route === null ? "any" : method, route: route ?? NO_ROUTE };
    counts.add({ ...known, status: c.res.status });
  };
}
