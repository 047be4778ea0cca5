// Requests made from the description of an API: most fit it, the others are wrong in one place.

import type { Ask } from "../fixture.ts";
import { type RawBody, rawBody, spoiltBytes } from "./bytes.ts";
import type { Random } from "./random.ts";
import { hostileValue, type Schema, sampleOf, spoilt } from "./values.ts";

/** One operation of the document. */
export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Schema[];
  readonly requestBody?: Schema;
  readonly responses: Readonly<Record<string, Schema>>;
  /** Whether a tenant's key is refused. */
  readonly isAdmin: boolean;
}

/** One request, and whether it fits the description. */
export interface FuzzRequest extends Ask {
  readonly path: string;
  readonly isGood: boolean;
}

/** Share of requests that fit. */
const GOOD_SHARE = 0.7;

/** All operations of a document. */
export function operationsOf(document: Schema): Operation[] {
  return Object.entries<Schema>(document["paths"]).flatMap(([path, methods]) =>
    Object.entries<Schema>(methods).map(([method, operation]) => ({
      ...(operation as Omit<Operation, "method" | "path" | "isAdmin">),
      method: method.toUpperCase(),
      path,
      isAdmin: operation["x-admin"] === true,
    })),
  );
}

/** Makes requests of one document. */
export class RequestMaker {
  readonly #schemas: Readonly<Record<string, Schema>>;
  readonly #random: Random;

  constructor(document: Schema, random: Random) {
    this.#schemas = document["components"]["schemas"];
    this.#random = random;
  }

  /** @param place the path with its parameters filled in, such that there is something */
  make(operation: Operation, place: string): FuzzRequest {
    const isGood = this.#random.chance(GOOD_SHARE);
    const raw = this.#raw(operation);
    const body = raw === null ? this.#body(operation) : raw.body;
    const path = place + this.#query(operation, raw?.without ?? []);
    const request = {
      method: operation.method,
      path,
      isGood,
      headers: raw?.headers ?? {},
      ...(body === undefined ? {} : { body }),
    };
    return isGood ? request : this.#wrong(operation, request);
  }

  /** A body that is no JSON, where the operation reads one. */
  #raw({ requestBody }: Operation): RawBody | null {
    const types = Object.keys(requestBody?.["content"] ?? {});
    if (types.length === 0 || types.includes("application/json")) return null;
    return rawBody(this.#random.pick(types), this.#random);
  }

  /** One thing is wrong with it. */
  #wrong(operation: Operation, request: FuzzRequest): FuzzRequest {
    const random = this.#random;
    const { path, body, headers } = request;
    const odd = encodeURIComponent(String(hostileValue(random)).toWellFormed());
    const kinds: (() => FuzzRequest)[] = [
      () => ({ ...request, path: `${path}${path.includes("?") ? "&" : "?"}${odd}=1` }),
      () => ({ ...request, path: operation.path.replace(/\{\w+\}/g, odd === "" ? "x" : odd) }),
      () => ({ ...request, key: random.pick([null, "nobody", "x".repeat(2000)]) }),
      () => ({
        ...request,
        headers: { ...headers, Accept: random.pick(["image/png", "*", ";;;", "a/b;q=x"]) },
      }),
      () => ({ ...request, method: random.pick(["HEAD", "OPTIONS", "PATCH", "PUT"]) }),
    ];
    for (const { name, in: place } of operation.parameters) {
      if (place === "query")
        kinds.push(() => ({ ...request, path: `${path.split("?")[0]}?${name}=${odd}` }));
      if (place === "header") {
        kinds.push(() => ({
          ...request,
          headers: { ...headers, [name]: random.pick(["x y", "-1", "k", "9e9"]) },
        }));
      }
    }
    if (body instanceof Uint8Array) {
      kinds.push(() => ({ ...request, ...spoiltBytes(request, random) }));
    } else if (body !== undefined) {
      kinds.push(() => ({ ...request, body: spoilt(body, random) ?? "null" }));
      kinds.push(() => ({ ...request, body: JSON.stringify(body).slice(0, -random.whole(9)) }));
      kinds.push(() => ({ ...request, headers: { "Content-Type": "text/plain" } }));
    }
    return random.pick(kinds)();
  }

  /** A body: an example of the schema, with more that fits it. */
  #body({ requestBody }: Operation): unknown {
    if (requestBody === undefined) return undefined;
    const schema = this.#resolved(requestBody["content"]["application/json"].schema);
    const example = schema["examples"] === undefined ? {} : this.#random.pick(schema["examples"]);
    if (typeof example !== "object" || example === null) return example;
    const more: Record<string, unknown> = {};
    for (const [name, property] of Object.entries<Schema>(schema["properties"] ?? {})) {
      const isFree = !Object.hasOwn(example, name) && !EXCLUSIVE.has(name);
      if (isFree && this.#random.chance(0.3))
        more[name] = sampleOf(this.#resolved(property), this.#random);
    }
    return { ...example, ...more };
  }

  #query({ parameters }: Operation, without: readonly string[]): string {
    const isSeqGiven = parameters.some(({ name }) => name === "from_seq");
    const isFree = (name: string): boolean =>
      !EXCLUSIVE.has(name) && !without.includes(name) && !(isSeqGiven && name === "format");
    const given = parameters.filter(
      ({ in: place, name }) => place === "query" && isFree(name) && this.#random.chance(0.4),
    );
    const pairs = given.map(({ name, schema }) => {
      return `${name}=${encodeURIComponent(String(sampleOf(schema, this.#random)))}`;
    });
    return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
  }

  #resolved(schema: Schema): Schema {
    const ref = schema["$ref"]?.replace("#/components/schemas/", "");
    return ref === undefined ? schema : (this.#schemas[ref] ?? {});
  }
}

/** What excludes something else, or has rules that no schema says; tests of their own know them. */
const EXCLUSIVE = new Set([
  "argv",
  "stdin_base64",
  "stdin_open",
  "tty",
  "files",
  "placement",
  "cursor",
]);
