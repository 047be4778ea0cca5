/** What goes wrong between an agent and its model, as errors that say what to do, without the key. */

import { CprgError } from "../../core/errors.ts";
import { redactKeys } from "../../core/redact-keys.ts";

/** Characters that are kept of what a model's server says of its own error. */
const SAID_CHARS_MAX = 300;
/** First wait before a repetition when the server names none; it doubles each time. */
const WAIT_MS_FIRST = 500;
const WAIT_MS_MAX = 60_000;

/** A failed request, as far as the library says. */
interface FailedCall {
  readonly message: string;
  readonly statusCode?: number;
  readonly responseHeaders?: Readonly<Record<string, string>>;
  readonly isRetryable?: boolean;
  readonly cause?: unknown;
}

/** What is to be done about a request that failed. */
export interface ModelFailure {
  readonly error: CprgError;
  /** Whether the same request may succeed later. */
  readonly isRetryable: boolean;
  /** How long the server asks to be left alone; null when it says nothing. */
  readonly retryAfterMs: number | null;
}

/**
 * Reads the library's error.
 *
 * @param secrets what no text may show
 */
export function modelFailure(thrown: unknown, secrets: readonly string[]): ModelFailure {
  const own = ownError(thrown);
  if (own !== null) return { error: own, isRetryable: false, retryAfterMs: null };
  const call = thrown as FailedCall;
  const { statusCode, isRetryable = false } = call;
  const error = new CprgError(...explained(call, secrets));
  const retryAfterMs = retryAfter(call.responseHeaders ?? {});
  return { error, isRetryable: isRetryable || statusCode === 429, retryAfterMs };
}

/** The wait before a repetition: what the server asks for, else longer each time. */
export function waitBefore(attempt: number, retryAfterMs: number | null): number {
  if (retryAfterMs !== null) return retryAfterMs;
  const waitMs = Math.min(WAIT_MS_MAX, WAIT_MS_FIRST * 2 ** attempt);
  return waitMs * (0.75 + Math.random() / 4);
}

function ownError(thrown: unknown): CprgError | null {
  for (let at: unknown = thrown, depth = 0; at instanceof Error && depth < 5; depth += 1) {
    if (CprgError.is(at)) return at;
    at = at.cause;
  }
  return null;
}

type ErrorParts = ConstructorParameters<typeof CprgError>;

function explained(call: FailedCall, secrets: readonly string[]): ErrorParts {
  const { statusCode } = call;
  if (statusCode === 401 || statusCode === 403) {
    // What the server says of a bad key may show the key.
    const hint = "Check the model's key in the control plane";
    return ["unauthenticated", `The model's server refused the key (HTTP ${statusCode})`, { hint }];
  }
  const text = redactKeys(call.message ?? String(call), secrets).slice(0, SAID_CHARS_MAX);
  if (statusCode === 429) {
    return ["resource_exhausted", `The model's server is asked too often (HTTP 429): ${text}`];
  }
  if (statusCode === undefined || statusCode < 400) {
    const isUnreachable = statusCode === undefined && call.isRetryable === true;
    const state = isUnreachable ? "cannot be reached" : "gave an answer that is none";
    return ["unavailable", `The model's server ${state}: ${text}`, { retryable: false }];
  }
  const state = statusCode >= 500 ? "failed" : "refused the request";
  return ["unavailable", `The model's server ${state} (HTTP ${statusCode}): ${text}`];
}

/** RFC 9110 section 10.2.3: seconds or a date; and the form in milliseconds that OpenAI sends. */
function retryAfter(headers: Readonly<Record<string, string>>): number | null {
  const exact = Number(headers["retry-after-ms"]);
  if (Number.isFinite(exact) && exact >= 0) return exact;
  const text = headers["retry-after"];
  if (text === undefined) return null;
  if (/^\d{1,9}$/.test(text.trim())) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : Math.max(0, at - Date.now());
}
