// The routes of the app, from one source: the tests of what every route must do are driven by it.

import type { Hono } from "hono";
import { ROUTES } from "../../src/http/app.ts";
import type { AppEnv } from "../../src/http/env.ts";

/** A route: `/v1/jobs/:id`. */
export interface Route {
  readonly method: string;
  readonly path: string;
}

/** Every route that answers, without middleware. */
export function routesOf(app: Hono<AppEnv>): Route[] {
  const routes = app.routes.filter(({ method }) => method !== "ALL");
  return routes.map(({ method, path }) => ({ method, path }));
}

/** Routes beneath `/v1` that name something by its id. */
export function routesWithIds(routes: readonly Route[]): Route[] {
  return routes.filter(({ path }) => path.startsWith("/v1/") && path.includes(":"));
}

/**
 * A path with an id in the place of its first parameter; further ones, and a `*`, get a word.
 *
 * @param ids an object of each folder of the API: `{jobs: ID}`
 * @throws when a route is of a folder that has no object: what belongs to a tenant must be tried
 */
export function pathWithId({ path }: Route, ids: Readonly<Record<string, string>>): string {
  const folder = path.split("/")[2] ?? "";
  const id = ids[folder];
  if (id === undefined) throw new Error(`no object of another tenant for ${path}: add one`);
  let isFirst = true;
  return path.replaceAll(/:[^/]+|\*/g, () => {
    const part = isFirst ? id : "x";
    isFirst = false;
    return part;
  });
}

/** A request that the route's description has as an example: a 404 must not be a 400 that came first. */
export function exampleOf({ method, path }: Route): {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
} {
  const described = path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}");
  const doc = ROUTES.find((route) => route.method === method && route.path === described);
  if (doc === undefined) throw new Error(`${method} ${path} is not described`);
  if (doc.bytes !== undefined) {
    return { body: "x", headers: { "Content-Type": doc.bytes[0] ?? "", "Content-Length": "1" } };
  }
  if (doc.body === undefined) return {};
  const [body] = (doc.body.meta()?.["examples"] ?? []) as readonly unknown[];
  if (body === undefined) throw new Error(`the body of ${method} ${path} has no example`);
  return { body };
}
