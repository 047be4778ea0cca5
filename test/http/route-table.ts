// The routes of the app, from one source: the tests of what every route must do are driven by it.

import type { Hono } from "hono";
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
