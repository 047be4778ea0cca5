/**
 * `/v1/sandboxes/{id}/files/{path}`: one file as it is, trees as tar, both ways and of any size. The
 * path is relative to /workspace; one that begins with an encoded slash (%2Ftmp/x) is absolute.
 */

import { posix } from "node:path";
import { type Context, Hono } from "hono";
import { CprgError, invalid } from "../../core/errors.ts";
import type { EntryPart } from "../../provider/contract.ts";
import { readTar } from "../../sandbox/tar-reader.ts";
import { writeTar } from "../../sandbox/tar-writer.ts";
import type { FilePlace } from "../../sandboxes/files.ts";
import type { SandboxService } from "../../sandboxes/service.ts";
import type { AppEnv } from "../env.ts";
import { filePath } from "../file-path.ts";
import { getFileParameters, putFileParameters, readParameters } from "../parameters.ts";
import { readQuery } from "../query.ts";
import { BYTES, TAR } from "../route-doc.ts";
import type { StreamedAnswers } from "../streamed.ts";

const FILE_MODE = 0o644;

/** What the routes work with. */
export interface SandboxFileRoutesOptions {
  readonly sandboxes: SandboxService;
  readonly streamed: StreamedAnswers;
}

/** The routes of files. */
export function sandboxFileRoutes(options: SandboxFileRoutesOptions): Hono<AppEnv> {
  const { files } = options.sandboxes;
  const app = new Hono<AppEnv>();

  app.get("/:id/files/*", (c) => take(c, options));

  app.put("/:id/files/*", async (c) => {
    const query = readParameters(c, putFileParameters);
    const place = placeOf(c);
    const isTar = mediaType(c) === TAR;
    refuseGiven(isTar ? { mode: query.mode } : { merge: query.merge, links: query.links });
    await options.sandboxes.get(place.tenant, place.sandboxId);
    const body = bodyOf(c);
    const entries = isTar
      ? readTar(body.chunks, { areLinksFree: query.links === "any" })
      : fileEntries(body.chunks, { size: lengthOf(c), mode: modeOf(query.mode) });
    const isMerge = query.merge === "true";
    try {
      await files.put(place, entries, { isMerge, signal: c.get("signal") });
    } finally {
      body.cancel();
    }
    return c.body(null, 204);
  });

  app.delete("/:id/files/*", async (c) => {
    readQuery(c, []);
    await files.remove(placeOf(c), { signal: c.get("signal") });
    return c.body(null, 204);
  });
  return app;
}

async function take(c: Context<AppEnv>, options: SandboxFileRoutesOptions): Promise<Response> {
  const { format } = readParameters(c, getFileParameters);
  const place = placeOf(c);
  const { streamed, sandboxes } = options;
  const entries = sandboxes.files.take(place);
  const name = posix.basename(place.path) || "files";
  if (isTarWanted(c, format)) {
    const mtimeSeconds = Math.floor(Date.now() / 1000);
    const tar = writeTar(entries, { name, mtimeSeconds });
    return await streamed.bytes(c, tar, { headers: fileHeaders(TAR) });
  }
  const first = await entries.next();
  const head = first.done || first.value instanceof Uint8Array ? null : first.value;
  if (head?.type !== "file") {
    await entries.return(undefined);
    throw noFile(head?.type === "link" ? "a link" : "a directory");
  }
  const headers = fileHeaders(BYTES);
  return await streamed.bytes(c, contentOf(entries), { headers });
}

/** What a program wrote must run nowhere: no type that a browser would show, and no origin. */
function fileHeaders(type: string): Record<string, string> {
  return {
    "Content-Type": type,
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox; default-src 'none'",
  };
}

async function* contentOf(entries: AsyncGenerator<EntryPart>): AsyncGenerator<Uint8Array> {
  for await (const part of entries) if (part instanceof Uint8Array) yield part;
}

async function* fileEntries(
  body: AsyncIterable<Uint8Array>,
  { size, mode }: { readonly size: number; readonly mode: number },
): AsyncGenerator<EntryPart> {
  yield { type: "file", mode, path: "", size };
  yield* body;
}

/** Where a request points to. @throws CprgError `invalid_argument` for a path that is none */
function placeOf(c: Context<AppEnv>): FilePlace {
  const sandboxId = c.req.param("id") ?? "";
  const path = filePath(c);
  return { tenant: c.get("principal").tenant, sandboxId, path: path === "" ? "." : path };
}

function mediaType(c: Context<AppEnv>): string {
  return c.req.header("content-type")?.split(";")[0]?.trim().toLowerCase() ?? "";
}

function isTarWanted(c: Context<AppEnv>, format: "tar" | "file" | undefined): boolean {
  if (format !== undefined) return format === "tar";
  return (c.req.header("accept") ?? "").toLowerCase().startsWith(TAR);
}

function refuseGiven(others: Readonly<Record<string, string | undefined>>): void {
  for (const [name, value] of Object.entries(others)) {
    if (value === undefined) continue;
    throw invalid(
      name,
      `Cannot use ${name} here`,
      "merge and links go with a tar, mode with a single file",
    );
  }
}

function modeOf(digits: string | undefined): number {
  return digits === undefined ? FILE_MODE : Number.parseInt(digits, 8);
}

/** A file's size goes before its content. */
function lengthOf(c: Context<AppEnv>): number {
  const text = c.req.header("content-length");
  if (text !== undefined && /^\d{1,15}$/.test(text)) return Number(text);
  if (text === undefined && c.req.raw.body === null) return 0;
  throw new CprgError(
    "invalid_argument",
    "Cannot put file: the request does not say how long it is",
    {
      reason: "LENGTH_REQUIRED",
      hint: "Send Content-Length, or a tar, which needs none",
    },
  );
}

/** The body as it comes, at the sandbox's pace; `cancel` ends it when nobody wants the rest. */
function bodyOf(c: Context<AppEnv>) {
  const reader = c.req.raw.body?.getReader();
  return {
    chunks: reader === undefined ? noChunks() : chunksOf(reader),
    cancel: () => void reader?.cancel().catch(() => undefined),
  };
}

async function* chunksOf(
  reader: Pick<ReadableStreamDefaultReader<Uint8Array>, "read">,
): AsyncGenerator<Uint8Array> {
  for (;;) {
    const { done, value } = await reader.read().catch(clientGone);
    if (done) return;
    yield value;
  }
}

async function* noChunks(): AsyncGenerator<Uint8Array> {}

function clientGone(cause: unknown): never {
  throw new CprgError("canceled", "Cannot read body: the client went away", { cause });
}

function noFile(what: string): CprgError {
  return new CprgError("failed_precondition", `Cannot get file: it is ${what}`, {
    reason: "NO_FILE",
    hint: "Ask for format=tar",
  });
}
