/** `cprg sandbox cp`: files and trees between this machine and a sandbox, with modes and links. */

import { lstatSync } from "node:fs";
import { basename, join, posix, resolve } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { EntryHead, EntryPart } from "../provider/contract.ts";
import { BytesBound } from "../sandbox/bytes-bound.ts";
import { writeTree } from "../sandbox/download.ts";
import { handOn } from "../sandbox/hand-on.ts";
import { readTar } from "../sandbox/tar-reader.ts";
import { writeTar } from "../sandbox/tar-writer.ts";
import { treeEntries } from "../sandbox/upload.ts";
import { type ServerAccess, sendBytes } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { EXIT } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import { checkCount, parseSandboxId, type SandboxContext, sandboxPath } from "./sandbox-context.ts";

const TAR = "application/x-tar";

/** A place in a sandbox as it was typed: `SANDBOX:PATH`. */
interface InnerPlace {
  readonly id: string;
  readonly path: string;
}

/** Copies one way or the other. */
export async function copyFiles(context: SandboxContext): Promise<number> {
  checkCount(context, 2);
  const { flags, args, terminal } = context;
  const [source = "", destination = ""] = args;
  const [from, to] = [innerPlace(source), innerPlace(destination)];
  if ((from === null) === (to === null) || source === "" || destination === "") {
    throw usageError(
      "Cannot copy: one of SOURCE and DESTINATION is in a sandbox",
      "SANDBOX:PATH names a place in one",
    );
  }
  const access = await serverAccess(flags, terminal);
  const directory = terminal.directory;
  if (to !== null) await copyIn(access, resolve(directory, source), to);
  else if (from !== null) await copyOut(access, from, localTarget(directory, destination, from));
  return EXIT.ok;
}

/** Null for a path of this machine, which may have a colon after a slash. */
function innerPlace(text: string): InnerPlace | null {
  const colon = text.indexOf(":");
  if (colon <= 0 || text.slice(0, colon).includes("/")) return null;
  const path = text.slice(colon + 1);
  return { id: parseSandboxId(text.slice(0, colon)), path: path === "" ? "." : path };
}

function localTarget(directory: string, destination: string, from: InnerPlace): string {
  const target = resolve(directory, destination);
  return destination.endsWith("/")
    ? join(target, posix.basename(posix.resolve("/", from.path)))
    : target;
}

async function copyIn(access: ServerAccess, source: string, to: InnerPlace): Promise<void> {
  const status = lstatSync(source, { throwIfNoEntry: false });
  if (status === undefined) throw usageError(`Cannot copy ${source}: no such file`);
  const path = to.path.endsWith("/") ? posix.join(to.path, basename(source)) : to.path;
  const place = filesPath({ ...to, path });
  if (status.isFile()) {
    const mode = (status.mode & 0o777).toString(8).padStart(3, "0");
    const body = Bun.file(source);
    await sendBytes(access, { method: "PUT", path: `${place}?mode=${mode}`, body });
    return;
  }
  if (!status.isDirectory()) throw usageError(`Cannot copy ${source}: neither a file nor a tree`);
  const tar = writeTar(treeEntries(source), { name: "", mtimeSeconds: 0 });
  const failures: unknown[] = [];
  try {
    await sendBytes(access, {
      method: "PUT",
      path: `${place}?links=any`,
      headers: { "Content-Type": TAR },
      body: pulled(tar, failures),
    });
  } catch (error) {
    // What could not be read here cut the request: that is what to tell.
    throw failures[0] ?? error;
  }
}

/** A stream of pieces; what makes it fail is noted. */
function pulled(
  pieces: AsyncGenerator<Uint8Array>,
  failures: unknown[],
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        failures.push(error);
        controller.error(error);
      }
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}

async function copyOut(access: ServerAccess, from: InnerPlace, target: string): Promise<void> {
  const path = `${filesPath(from)}?format=tar`;
  const body = await sendBytes(access, { method: "GET", path });
  const bytes = new BytesBound(Number.POSITIVE_INFINITY, `copy ${from.path}`);
  await writeTree(target, {
    bytes,
    fill: (sink) => handOn(rooted(readTar(body, { areLinksFree: true })), sink),
  });
}

/** A single file comes under its own name; here it is the whole. */
async function* rooted(entries: AsyncIterable<EntryPart>): AsyncGenerator<EntryPart> {
  let isSingle: boolean | null = null;
  for await (const part of entries) {
    if (part instanceof Uint8Array) yield part;
    else {
      if (isSingle === true) throw strangeTar(part);
      isSingle ??= part.path !== "";
      yield isSingle ? { ...part, path: "" } : part;
    }
  }
}

function strangeTar({ path }: EntryHead): CprgError {
  return new CprgError("data_loss", `Cannot copy: the server sent ${JSON.stringify(path)} as well`);
}

/** The path of a place; a leading slash is encoded, because it means an absolute one. */
function filesPath({ id, path }: InnerPlace): string {
  const isAbsolute = path.startsWith("/");
  const plain = posix.normalize(path).replace(/^\/+|\/+$/g, "");
  const parts = plain.split("/").map(encodeURIComponent).join("/");
  return `${sandboxPath(id)}/files/${isAbsolute ? "%2F" : ""}${plain === "." ? "" : parts}`;
}
