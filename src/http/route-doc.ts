/** How a route is described: what `/openapi.json` says, and what requests are held against. */

import type { z } from "zod";
import type { Parameters } from "./parameters.ts";

/** Media types of what is no JSON: bytes as they are, and a tree of files. */
export const BYTES = "application/octet-stream";
export const TAR = "application/x-tar";

/** One route. */
export interface RouteDoc {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** As in OpenAPI: `/v1/jobs/{id}`; a last `{path}` stands for all that follows, or nothing. */
  readonly path: string;
  /** The part of the product it belongs to. */
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  /** `none`: no key is needed; `admin`: a tenant's key gets 403. */
  readonly access: "none" | "key" | "admin";
  readonly parameters?: Parameters;
  /** Request headers that it reads, with what they do. */
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON that it reads. */
  readonly body?: z.ZodType;
  /** Media types of bytes that it reads, in place of JSON. */
  readonly bytes?: readonly string[];
  /** Successes, by status. */
  readonly answers: Readonly<Record<number, AnswerDoc>>;
  /** Statuses of problems, beside those that every route can have. */
  readonly problems?: readonly number[];
}

/** One kind of success. */
export interface AnswerDoc {
  readonly description: string;
  /** Schemas by media type; null for what is no JSON. */
  readonly content?: Readonly<Record<string, z.ZodType | null>>;
}

/** A success with JSON. */
export function json(description: string, schema: z.ZodType): AnswerDoc {
  return { description, content: { "application/json": schema } };
}

/** Whether a path is one of a route's. */
export function isPathOf({ path }: Pick<RouteDoc, "path">, given: string): boolean {
  const wanted = path.split("/");
  const parts = given.split("/");
  const isOpen = wanted.at(-1) === "{path}";
  if (isOpen ? parts.length < wanted.length : parts.length !== wanted.length) return false;
  return wanted.every((part, index) => {
    if (isOpen && index === wanted.length - 1) return true;
    return part.startsWith("{") ? parts[index] !== "" : part === parts[index];
  });
}

/** The route of a request; HEAD is answered by GET. A path without parameters goes before others. */
export function findRoute(
  routes: readonly RouteDoc[],
  method: string,
  path: string,
): RouteDoc | null {
  const wanted = method === "HEAD" ? "GET" : method;
  const found = routes.filter((route) => route.method === wanted && isPathOf(route, path));
  return found.find((route) => route.path === path) ?? found[0] ?? null;
}
