/**
 * Errors as RFC 9457 problem documents: the one place that turns a CprgError into an answer. What is
 * no CprgError, or is internal, is logged and not shown.
 */

import type { Context } from "hono";
import { type CprgError, type ErrorCode, HTTP_STATUS } from "../core/errors.ts";
import { redactKeys } from "../core/redact-keys.ts";
import type { AppEnv } from "./env.ts";
import { presentedSecrets } from "./presented.ts";

/** Reasons that have a status of their own; otherwise the code decides. */
const STATUS_BY_REASON: Readonly<Record<string, number>> = {
  METHOD_NOT_ALLOWED: 405,
  TASK_STATUS: 409,
  NOT_ACCEPTABLE: 406,
  BODY_TIMEOUT: 408,
  LENGTH_REQUIRED: 411,
  BODY_TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  HOST_NOT_ALLOWED: 421,
  IDEMPOTENCY_KEY_REUSED: 422,
  UPGRADE_REQUIRED: 426,
  STORE_UNWRITABLE: 503,
  QUEUE_FULL: 503,
  DISK_FULL: 507,
  SANDBOX_FULL: 507,
  TENANT_STORAGE_FULL: 507,
};

const TITLES: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  408: "Request Timeout",
  409: "Conflict",
  411: "Length Required",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  421: "Misdirected Request",
  422: "Unprocessable Content",
  426: "Upgrade Required",
  429: "Too Many Requests",
  499: "Client Closed Request",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  507: "Insufficient Storage",
};

/** Codes whose messages may hold what clients must not see. */
const HIDDEN_CODES: readonly ErrorCode[] = ["internal", "unknown", "data_loss"];

/** Fields that may repeat what a client sent. */
const ECHOES: readonly string[] = ["detail", "hint", "field"];

/** A problem document. */
export interface Problem {
  readonly type: "about:blank";
  readonly title: string;
  readonly status: number;
  readonly code: ErrorCode;
  readonly detail: string;
  readonly reason?: string;
  readonly hint?: string;
  readonly field?: string;
  readonly request_id: string;
}

/** HTTP status of an error. */
export function problemStatus(error: CprgError): number {
  return STATUS_BY_REASON[error.reason ?? ""] ?? HTTP_STATUS[error.code];
}

/** The problem that the client of a request sees: without keys, and without the one that it sent. */
export function problemOf(c: Context<AppEnv>, error: CprgError): Problem {
  const problem = shownProblem(error, c.get("requestId"));
  const secrets = presentedSecrets(c);
  const fields = Object.entries(problem).map(([name, value]) => {
    const isEcho = ECHOES.includes(name) && typeof value === "string";
    return [name, isEcho ? redactKeys(value, secrets) : value];
  });
  return Object.fromEntries(fields);
}

function shownProblem(error: CprgError, requestId: string): Problem {
  const status = problemStatus(error);
  const base = {
    type: "about:blank",
    title: TITLES[status] ?? "Error",
    status,
    code: error.code,
    request_id: requestId,
  } as const;
  if (HIDDEN_CODES.includes(error.code)) {
    return {
      ...base,
      detail: "The server failed to handle this request",
      hint: "Its log has the cause under this request_id",
    };
  }
  return {
    ...base,
    detail: error.message,
    ...(error.reason === undefined ? {} : { reason: error.reason }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.field === undefined ? {} : { field: error.field }),
  };
}

/** The answer to a request that failed. */
export function problemResponse(c: Context<AppEnv>, error: CprgError): Response {
  const problem = problemOf(c, error);
  const headers = new Headers({ "Content-Type": "application/problem+json" });
  if (problem.status === 401) headers.set("WWW-Authenticate", 'Bearer realm="cprg"');
  if (problem.status === 426) headers.set("Upgrade", "websocket");
  if (error.retryAfterSeconds !== undefined) {
    headers.set("Retry-After", String(Math.max(1, Math.ceil(error.retryAfterSeconds))));
  }
  return c.newResponse(JSON.stringify(problem), { status: problem.status as 400, headers });
}
