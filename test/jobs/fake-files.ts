// Files of a fake sandbox, moved as entries: text by absolute path, and directories only as names.

import { posix } from "node:path";
import { CprgError } from "../../src/core/errors.ts";
import type { EntryPart, EntrySink } from "../../src/provider/contract.ts";

type Files = Map<string, string>;

/** Keeps the files among entries; nothing when the entries throw. */
export async function putEntries(
  files: Files,
  place: string,
  entries: AsyncIterable<EntryPart>,
): Promise<void> {
  const come = new Map<string, Uint8Array[]>();
  let content: Uint8Array[] = [];
  for await (const part of entries) {
    if (part instanceof Uint8Array) content.push(part);
    else {
      content = [];
      if (part.type === "file") come.set(at(posix.join(place, part.path)), content);
    }
  }
  for (const [path, parts] of come) files.set(path, Buffer.concat(parts).toString("utf8"));
}

/** Hands a file, or everything beneath a place, to a sink. */
export async function takeEntries(files: Files, place: string, sink: EntrySink): Promise<void> {
  const root = at(place);
  const own = files.get(root);
  if (own !== undefined) return await give(sink, "", own);
  const beneath = [...files].filter(([path]) => path.startsWith(`${root}/`)).sort();
  if (beneath.length === 0) throw new CprgError("not_found", `Cannot take ${place}: not there`);
  const given = new Set<string>();
  const directory = async (path: string): Promise<void> => {
    if (given.has(path)) return;
    if (path !== "") await directory(parentOf(path));
    given.add(path);
    await sink.entry({ type: "directory", mode: 0o755, path, size: 0 });
  };
  for (const [path, text] of beneath) {
    const relative = path.slice(root.length + 1);
    await directory(parentOf(relative));
    await give(sink, relative, text);
  }
}

/** Forgets what is at a place. */
export async function removeEntries(files: Files, place: string): Promise<void> {
  const root = at(place);
  for (const path of files.keys()) {
    if (path === root || path.startsWith(`${root}/`)) files.delete(path);
  }
}

async function give(sink: EntrySink, path: string, text: string): Promise<void> {
  const bytes = Buffer.from(text);
  await sink.entry({ type: "file", mode: 0o644, path, size: bytes.length });
  if (bytes.length > 0) await sink.content(bytes);
}

function parentOf(path: string): string {
  return path.includes("/") ? posix.dirname(path) : "";
}

function at(place: string): string {
  return posix.resolve("/workspace", place);
}
