/** Request bodies: JSON in UTF-8, bounded in bytes, depth and values before it is parsed. */

import type { Context } from "hono";
import { CprgError } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";
import { checkJsonBounds } from "./json-bounds.ts";

/** Bytes of a request body. Files and code are inside it, in base64 or escaped. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;

/**
 * The JSON of a request.
 *
 * @throws CprgError with reason UNSUPPORTED_MEDIA_TYPE (415) or BODY_TOO_LARGE (413), or
 *   `invalid_argument` for what is no JSON in UTF-8
 */
export async function readJson(c: Context<AppEnv>): Promise<unknown> {
  checkMediaType(c);
  const bytes = await readBounded(c.req.raw);
  const text = decode(bytes);
  checkJsonBounds(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notReadable("it is not JSON", { cause: error });
  }
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

async function readBounded(request: Request): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? 0) > BODY_BYTES_MAX) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    size += chunk.length;
    if (size > BODY_BYTES_MAX) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
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
