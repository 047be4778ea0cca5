/**
 * The HTTP client of the client commands: requests with deadlines, problem JSON to CprgError, and
 * one error for "no server answers". It knows addresses and shapes, no commands.
 */

import { CprgError, type ErrorCode, HTTP_STATUS } from "../core/errors.ts";
import { UNREACHABLE } from "./exit-code.ts";
import { usageError } from "./flags.ts";

/** Longest that a request may take when its caller does not say, in milliseconds. */
export const REQUEST_TIMEOUT_MS = 30_000;

/** Largest JSON answer that is read into memory, in bytes. */
export const ANSWER_BYTES_MAX = 256 * 1024 * 1024;

/** Largest problem that is read, in bytes; what follows is no text for people. */
const PROBLEM_BYTES_MAX = 64 * 1024;

/** Which server, and who asks. */
export interface ServerAccess {
  readonly url: URL;
  /** Null: none is sent. */
  readonly key: string | null;
  /** Certificates in PEM, the only ones that are believed; absent: those of the system. */
  readonly ca?: string;
}

/** One request. */
export interface ApiRequest {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Beneath the server's URL, with its query: `/v1/jobs?limit=50`. */
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  readonly timeoutMs?: number;
}

/** An answer with a body to be read. */
export interface ApiAnswer {
  readonly status: number;
  readonly body: unknown;
}

/**
 * Parses a server's URL.
 *
 * @throws CprgError when it is no http(s) URL, or carries a user name, query or fragment
 */
export function parseServer(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain =
    url !== null &&
    ["http:", "https:"].includes(url.protocol) &&
    `${url.username}${url.password}${url.search}${url.hash}` === "";
  if (url === null || !isPlain) {
    throw usageError(
      `Cannot use server "${text}": expected a URL such as http://127.0.0.1:7300`,
      "--server URL, or the variable CPRG_SERVER",
    );
  }
  url.pathname = url.pathname.replace(/\/+$/, "");
  return url;
}

/**
 * Sends a request and reads its JSON answer.
 *
 * @throws CprgError as the server's problem says, or with the reason SERVER_UNREACHABLE
 */
export async function requestJson(access: ServerAccess, request: ApiRequest): Promise<ApiAnswer> {
  const response = await send(access, request);
  const text = await readBounded(bodyOf(access, response), ANSWER_BYTES_MAX);
  if (text === null) throw strangeAnswer(access, response.status);
  try {
    return { status: response.status, body: JSON.parse(text) as unknown };
  } catch (cause) {
    throw strangeAnswer(access, response.status, cause);
  }
}

/**
 * Sends a request and hands on the body's bytes as they come; the timeout covers all of it.
 *
 * @param take called for each chunk, one after the other; what it throws passes as it is
 * @throws CprgError as {@link requestJson}
 */
export async function download(
  access: ServerAccess,
  request: ApiRequest,
  take: (bytes: Uint8Array) => Promise<void>,
): Promise<void> {
  const response = await send(access, request);
  for await (const bytes of bodyOf(access, response)) await take(bytes);
}

/** The answer to a request, unless it is a problem; the deadline covers its body too. */
async function send(access: ServerAccess, request: ApiRequest): Promise<Response> {
  const signal = AbortSignal.timeout(request.timeoutMs ?? REQUEST_TIMEOUT_MS);
  const response = await fetchAnswer(access, request, signal);
  if (!response.ok) throw await problemError(access, response);
  return response;
}

/** The bytes of an answer. Only a failure to read them means that the server is gone. */
async function* bodyOf(access: ServerAccess, response: Response): AsyncGenerator<Uint8Array> {
  try {
    yield* response.body ?? [];
  } catch (error) {
    throw unreachable(access, error);
  }
}

async function fetchAnswer(access: ServerAccess, request: ApiRequest, signal: AbortSignal) {
  avoidProxy(access.url);
  try {
    return await fetch(apiUrl(access, request.path), {
      method: request.method ?? "GET",
      headers: {
        Accept: "application/json, application/x-ndjson, application/problem+json",
        ...authorization(access),
        ...(request.body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
      // A redirect could carry the key to another host.
      redirect: "error",
      ...tlsOf(access),
      signal,
    });
  } catch (error) {
    throw unreachable(access, error);
  }
}

/** A request whose body is bytes as they come, or that answers with such. */
export interface BytesRequest {
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Bun.BodyInit;
  /** Ends it; without one it takes as long as it takes. */
  readonly signal?: AbortSignal;
}

/**
 * Sends bytes, and hands on those of the answer.
 *
 * @throws CprgError as {@link requestJson}
 */
export async function sendBytes(
  access: ServerAccess,
  { method, path, headers, body, signal }: BytesRequest,
): Promise<AsyncIterable<Uint8Array>> {
  avoidProxy(access.url);
  const response = await fetch(apiUrl(access, path), {
    method,
    headers: { ...authorization(access), ...headers },
    redirect: "error",
    ...(body === undefined ? {} : { body }),
    ...(signal === undefined ? {} : { signal }),
  }).catch((error: unknown) => {
    throw unreachable(access, error);
  });
  if (!response.ok) throw await problemError(access, response);
  return bodyOf(access, response);
}

/** The URL of a path, beneath the server's own path. */
export function apiUrl(access: ServerAccess, path: string): string {
  const base = access.url.pathname === "/" ? "" : access.url.pathname;
  return `${access.url.origin}${base}${path}`;
}

/** Options of `fetch` and `WebSocket` for a server with a certificate of its own authority. */
export function tlsOf({ ca }: ServerAccess): { tls?: { ca: string } } {
  return ca === undefined ? {} : { tls: { ca } };
}

/** The header that says who asks, if anyone. */
export function authorization(access: ServerAccess): Record<string, string> {
  return access.key === null ? {} : { Authorization: `Bearer ${access.key}` };
}

/** Whether a URL's host is this machine by definition. */
export function isLocalServer(url: URL): boolean {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** Bun's fetch sends even requests to this machine, keys included, to the proxy of HTTP_PROXY. */
function avoidProxy(url: URL): void {
  if (!isLocalServer(url)) return;
  for (const name of ["NO_PROXY", "no_proxy"]) {
    const hosts = process.env[name]?.split(",") ?? [];
    if (!hosts.includes(url.hostname)) process.env[name] = [...hosts, url.hostname].join(",");
  }
}

/** No server answers: exit code 4. */
export function unreachable(access: ServerAccess, cause: unknown): CprgError {
  const why = networkProblem(cause);
  return new CprgError("unavailable", `Cannot reach server "${access.url.href}": ${why}`, {
    reason: UNREACHABLE,
    hint: isUntrusted(cause)
      ? "Name the certificate of its authority with --ca FILE or CPRG_CA"
      : isLocalServer(access.url)
        ? 'Start one with "cprg serve", or name another with --server URL'
        : "Check the address and that the server runs",
    cause,
  });
}

/** Whether the server's certificate was not believed (X509_verify_cert_error_string(3)). */
function isUntrusted(cause: unknown): boolean {
  const { code } = cause as NodeJS.ErrnoException;
  return typeof code === "string" && /CERT|SIGNED|ISSUER/.test(code);
}

function networkProblem(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  if (cause.name === "TimeoutError") return "no answer in time";
  const isRefused = (cause as NodeJS.ErrnoException).code === "ECONNREFUSED";
  return isRefused ? "connection refused" : cause.message;
}

function strangeAnswer(access: ServerAccess, status: number, cause?: unknown): CprgError {
  return new CprgError(
    "unknown",
    `Cannot use the answer of "${access.url.href}": status ${status}, but no JSON of cprg`,
    { hint: "Check that --server names a cprg server", cause },
  );
}

async function problemError(access: ServerAccess, response: Response): Promise<CprgError> {
  const body = bodyOf(access, response);
  const text = await readBounded(body, PROBLEM_BYTES_MAX).catch(() => null);
  const problem = parseProblem(text ?? "");
  const code = toErrorCode(problem["code"], response.status);
  const option = (name: string): Record<string, string> => {
    const value = problem[name];
    return typeof value === "string" ? { [name]: value } : {};
  };
  const detail = problem["detail"] ?? problem["title"];
  const id = problem["request_id"];
  const hint = code === "unauthenticated" ? KEY_HINT : problem["hint"];
  return new CprgError(
    code,
    typeof detail === "string" ? detail : `Cannot do that: the server answered ${response.status}`,
    {
      ...option("reason"),
      ...option("field"),
      ...(typeof hint === "string" ? { hint } : {}),
      ...(typeof id === "string" ? { op: `request ${id}` } : {}),
    },
  );
}

/** In terms of this program; the server's own hint speaks of headers. */
const KEY_HINT = "--key KEY, the variable CPRG_KEY, or run as the user who started the server";

function parseProblem(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    // Not every error comes from cprg: a proxy or the runtime itself sends no problem JSON.
    return {};
  }
}

function toErrorCode(value: unknown, status: number): ErrorCode {
  if (typeof value === "string" && Object.hasOwn(HTTP_STATUS, value)) return value as ErrorCode;
  const codes = Object.entries(HTTP_STATUS) as [ErrorCode, number][];
  return codes.find(([, known]) => known === status)?.[0] ?? "unknown";
}

/** A body as text, or null when it is larger than `bytesMax`. */
async function readBounded(
  body: AsyncIterable<Uint8Array>,
  bytesMax: number,
): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const bytes of body) {
    size += bytes.length;
    if (size > bytesMax) return null;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString("utf8");
}
