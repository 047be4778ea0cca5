/** Request bodies: JSON in UTF-8, bounded in bytes, depth and values before it is parsed. */

import type { Context } from "hono";
import { CprgError } from "../core/errors.ts";
import type { BodyBudget, BodyShare } from "./body-budget.ts";
import type { AppEnv } from "./env.ts";
import { ANSWER_IDLE_SECONDS, NO_IDLE_TIMEOUT } from "./idle.ts";
import { checkJsonBounds } from "./json-bounds.ts";

/** Bytes of a request body. Files and code are inside it, in base64 or escaped. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;

/** How long a body may take, from its first byte to its last. */
export const BODY_TIMEOUT_MS = 300_000;

/** What bodies are read under. */
export interface BodyRules {
  readonly budget: BodyBudget;
  readonly timeoutMs: number;
}

/**
 * The JSON of a request.
 *
 * @throws CprgError with reason UNSUPPORTED_MEDIA_TYPE (415), BODY_TOO_LARGE (413), BODY_TIMEOUT
 *   (408) or BODIES_FULL (503); `invalid_argument` for what is no JSON in UTF-8; `canceled` when the
 *   client went away
 */
export async function readJson(c: Context<AppEnv>, rules: BodyRules): Promise<unknown> {
  checkMediaType(c);
  using share = rules.budget.open(c.get("principal").tenant);
  const text = decode(await readTimely(c, { share, timeoutMs: rules.timeoutMs }));
  checkJsonBounds(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notReadable("it is not JSON", { cause: error });
  }
}

/**
 * The bytes of a request, whatever they are.
 *
 * @throws CprgError as {@link readJson}, but for what makes JSON
 */
export async function readBytes(c: Context<AppEnv>, rules: BodyRules): Promise<Uint8Array> {
  using share = rules.budget.open(c.get("principal").tenant);
  return await readTimely(c, { share, timeoutMs: rules.timeoutMs });
}

function checkMediaType(c: Context<AppEnv>): void {
  const type = c.req.header("content-type")?.split(";")[0]?.trim().toLowerCase();
  const encoding = c.req.header("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (type === "application/json" && encoding === "identity") return;
  throw new CprgError("invalid_argument", "Cannot read body: it is not declared as plain JSON", {
    reason: "UNSUPPORTED_MEDIA_TYPE",
    hint: "Send Content-Type: application/json, without Content-Encoding",
  });
}

interface ReadOptions {
  readonly share: BodyShare;
  readonly timeoutMs: number;
}

/** Under a deadline of its own: the listener's bound of silence is meant for answers. */
async function readTimely(c: Context<AppEnv>, options: ReadOptions): Promise<Uint8Array> {
  const { listener } = c.env ?? {};
  // What is declared holds nothing up: only what has come counts.
  if (Number(c.req.header("content-length")) > BODY_BYTES_MAX) throw tooLarge();
  listener?.setIdleTimeout(c.req.raw, NO_IDLE_TIMEOUT);
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(tooSlow(options.timeoutMs)), options.timeoutMs);
  const signal = c.get("signal");
  const giveUp = (): void => late.reject(signal.reason);
  // What is rejected while nobody reads is no failure of its own.
  late.promise.catch(() => undefined);
  signal.addEventListener("abort", giveUp);
  if (signal.aborted) giveUp();
  try {
    const bytes = await readBounded(c.req.raw, { share: options.share, late: late.promise });
    // What nobody may be answered is not begun.
    signal.throwIfAborted();
    return bytes;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", giveUp);
    listener?.setIdleTimeout(c.req.raw, ANSWER_IDLE_SECONDS);
  }
}

async function readBounded(
  request: Request,
  { share, late }: { readonly share: BodyShare; readonly late: Promise<never> },
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  const reader = request.body?.getReader();
  if (reader === undefined) return new Uint8Array();
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await Promise.race([reader.read().catch(clientGone), late]);
      if (done) return Buffer.concat(chunks);
      size += value.length;
      if (size > BODY_BYTES_MAX) throw tooLarge();
      share.grow(size);
      chunks.push(value);
    }
  } catch (error) {
    // The answer tells; what the runtime says of the rest is of no interest.
    void reader.cancel().catch(() => undefined);
    throw error;
  }
}

function clientGone(cause: unknown): never {
  throw new CprgError("canceled", "Cannot read body: the client went away", { cause });
}

function tooSlow(timeoutMs: number): CprgError {
  return new CprgError("deadline_exceeded", `Cannot read body: not whole in ${timeoutMs} ms`, {
    reason: "BODY_TIMEOUT",
  });
}

function tooLarge(): CprgError {
  return new CprgError("invalid_argument", `Cannot read body: above ${BODY_BYTES_MAX} bytes`, {
    reason: "BODY_TOO_LARGE",
  });
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw notReadable("it is not UTF-8", {
      cause: error,
      hint: "Send bytes that are no text in base64 (stdin_base64, files[].base64)",
    });
  }
}

function notReadable(state: string, options: { cause: unknown; hint?: string }): CprgError {
  const message = `Cannot read body: ${state}`;
  return new CprgError("invalid_argument", message, { field: "body", ...options });
}
