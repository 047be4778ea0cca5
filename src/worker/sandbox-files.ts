/**
 * Files of a place that is a sandbox. Content goes through the lease, which moves it by a process
 * inside; everything else is asked of a program inside (`inside-program.ts`). Nothing of it resolves
 * a path on the host, so what a program of the sandbox changes meanwhile leads nobody out of it.
 */

import { posix } from "node:path";
import { z } from "zod";
import { CprgError, invalid } from "../core/errors.ts";
import type { EntryPart, ExecLease } from "../provider/contract.ts";
import { pulledEntries } from "../sandbox/entry-pipe.ts";
import type { LocalLanguage } from "../sandbox/languages.ts";
import { PATH_BYTES_MAX } from "./confined-roots.ts";
import { fileError, pathEscapes } from "./file-error.ts";
import { INSIDE_PROGRAM, type InsideRequest, REQUEST_VARIABLE } from "./inside-program.ts";
import type {
  FileContent,
  ListOptions,
  MakeOptions,
  PathStat,
  PlaceFiles,
  PutCounts,
  PutTreeOptions,
} from "./place.ts";
import { stageName } from "./tree-put.ts";
import { ARCHIVE_ERRNOS } from "./tree-writer.ts";

const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
/** Of one answer: a full list of long names, each with the target of a link. */
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
const ANSWER_MS_MAX = 30_000;

const STAT = z.object({
  name: z.string(),
  type: z.enum(["file", "directory", "link", "other"]),
  size: z.number(),
  mode: z.number(),
  modifiedMs: z.number(),
  linkTarget: z.string(),
});
const CHECK = z.object({ isThere: z.boolean(), isDirectory: z.boolean() });
const LIST = z.object({ entries: z.array(STAT), more: z.boolean() });
const ANSWER = z.union([
  z.object({ ok: z.unknown(), path: z.string() }),
  z.object({ code: z.string() }),
]);

/** Files in a lease. */
export class SandboxFiles implements PlaceFiles {
  readonly #lease: ExecLease;
  readonly #runtime: LocalLanguage;

  /** @param runtime of JavaScript, inside */
  constructor(lease: ExecLease, runtime: LocalLanguage) {
    this.#lease = lease;
    this.#runtime = runtime;
  }

  async stat(path: string): Promise<PathStat> {
    return STAT.parse((await this.#ask("stat", path)).ok);
  }

  async list(path: string, { after, limit }: ListOptions) {
    const { ok } = await this.#ask("list", path, { after, limit, isLinkRefused: true });
    return LIST.parse(ok);
  }

  async read(
    path: string,
    { offset, length, lengthMax }: { offset: number; length: number; lengthMax: number },
  ): Promise<FileContent> {
    const { path: at } = await this.#ask("check", path, { isLinkRefused: true });
    const never = new AbortController().signal;
    const entries = this.#take(at, never);
    try {
      const { value: head } = await entries.next();
      if (!head || head instanceof Uint8Array) throw errno("EIO", "read", path);
      if (head.type !== "file") throw errno("EISDIR", "read", path);
      const left = Math.max(0, head.size - offset);
      const wanted = length === 0 ? left : Math.min(length, left);
      if (wanted > lengthMax) throw tooLarge(wanted, lengthMax);
      const content = await sliceOf(entries, offset, offset + wanted);
      return { content, size: head.size, mode: head.mode };
    } finally {
      await entries.return();
    }
  }

  async write(path: string, content: Uint8Array, { mode, parents }: MakeOptions): Promise<void> {
    const at = await this.#target(path, parents);
    const old = await this.#statIfThere(at);
    if (old?.type === "directory") throw errno("EISDIR", "write", path);
    const own = old?.type === "file" ? old.mode : FILE_MODE;
    try {
      await this.#lease.putFile(at, content, mode ?? own);
    } catch (error) {
      throw ofTransfer(error, "write", path);
    }
  }

  async makeDir(path: string, { mode = DIRECTORY_MODE, parents }: MakeOptions): Promise<void> {
    await this.#ask("makeDir", path, { mode, parents });
  }

  async remove(path: string, { recursive }: { readonly recursive: boolean }): Promise<boolean> {
    this.#refuseRoot("remove", path);
    const there = await this.#statIfThere(path);
    if (there === null) return false;
    if (recursive) await this.#lease.remove((await this.#ask("check", path)).path);
    else await this.#ask("removeOne", path);
    return true;
  }

  async rename(from: string, to: string): Promise<void> {
    for (const path of [from, to]) this.#refuseRoot("rename", path);
    await this.#ask("rename", from, { to: this.#inside(to) });
  }

  async *take(path: string, signal: AbortSignal): AsyncGenerator<EntryPart, void, void> {
    yield* this.#take((await this.#ask("check", path)).path, signal);
  }

  async put(
    path: string,
    entries: AsyncIterable<EntryPart>,
    { parents, merge, type, signal }: PutTreeOptions,
  ): Promise<PutCounts> {
    if (!merge) this.#refuseRoot("upload", path);
    const { ok, path: at } = await this.#ask("check", path, { parents, isLinkRefused: true });
    const old = CHECK.parse(ok);
    if (old.isThere && old.isDirectory !== (type === "directory")) {
      throw errno(type === "directory" ? "EEXIST" : "EISDIR", "upload", path);
    }
    if (merge && !old.isThere && !parents) throw errno("ENOENT", "upload", path);
    const counts = { bytes: 0, entries: 0 };
    const counting = counted(entries, counts);
    try {
      if (merge && old.isThere) await this.#merge(counting, at, signal);
      else await this.#lease.putEntries(counting, at, { signal });
    } catch (error) {
      throw ofTransfer(error, "upload", path);
    }
    return counts;
  }

  /** All of it beside what is there, and then name by name. */
  async #merge(entries: AsyncIterable<EntryPart>, at: string, signal: AbortSignal): Promise<void> {
    const stage = posix.join(at, stageName());
    try {
      await this.#lease.putEntries(entries, stage, { signal });
      await this.#ask("merge", stage, { to: at });
    } finally {
      await this.#lease.remove(stage).catch(() => undefined);
    }
  }

  async *#take(at: string, signal: AbortSignal): AsyncGenerator<EntryPart, void, void> {
    yield* pulledEntries((sink, gone) =>
      this.#lease.takeEntries(at, sink, { signal: AbortSignal.any([signal, gone]) }),
    );
  }

  async #statIfThere(path: string): Promise<PathStat | null> {
    try {
      return await this.stat(path);
    } catch (error) {
      if (CprgError.is(error) && error.code === "not_found") return null;
      throw error;
    }
  }

  /** Where something is to be put: no link may be there. */
  async #target(path: string, parents: boolean): Promise<string> {
    return (await this.#ask("check", path, { parents, isLinkRefused: true })).path;
  }

  /** @throws CprgError `failed_precondition` for root and home themselves */
  #refuseRoot(op: string, path: string): void {
    if (![this.#lease.root, this.#lease.home].includes(this.#inside(path))) return;
    throw new CprgError("failed_precondition", `Cannot ${op} ${JSON.stringify(path)}: no name`, {
      reason: "NO_NAME",
    });
  }

  /** An absolute path beneath root or home, as far as its text says. */
  #inside(path: string): string {
    const isText = !path.includes("\0") && path.isWellFormed();
    if (!isText || Buffer.byteLength(path) > PATH_BYTES_MAX) {
      throw invalid("path", `A path is at most ${PATH_BYTES_MAX} bytes of UTF-8 without NUL`);
    }
    const { root, home } = this.#lease;
    const absolute = posix.resolve(root, path);
    const isWithin = [root, home].some((base) => `${absolute}/`.startsWith(`${base}/`));
    if (!isWithin) throw pathEscapes(path);
    return absolute;
  }

  /** Asks the program inside. @throws CprgError by the errno that it says */
  async #ask(
    op: InsideRequest["op"],
    path: string,
    rest: Partial<InsideRequest> = {},
  ): Promise<{ ok: unknown; path: string }> {
    const { root, home } = this.#lease;
    const request: InsideRequest = { op, roots: [root, home], path: this.#inside(path), ...rest };
    const { stdout } = await this.#lease.invoke({
      executable: this.#runtime.executable,
      arguments: ["-e", INSIDE_PROGRAM],
      variables: { ...this.#runtime.variables, [REQUEST_VARIABLE]: JSON.stringify(request) },
      retain: ANSWER_BYTES_MAX,
      deadlineMs: ANSWER_MS_MAX,
    });
    const answer = ANSWER.safeParse(parsed(stdout)).data;
    if (answer === undefined)
      throw new CprgError("internal", `Cannot ${op}: no answer from inside`);
    if ("code" in answer) throw errno(answer.code, op, path);
    return answer;
  }
}

/** The bytes between two places of a file, of which no more is read than is needed. */
async function sliceOf(
  parts: AsyncIterable<EntryPart>,
  from: number,
  to: number,
): Promise<Uint8Array> {
  const found: Uint8Array[] = [];
  let passed = 0;
  if (from >= to) return new Uint8Array();
  for await (const part of parts) {
    if (!(part instanceof Uint8Array)) break;
    found.push(part.subarray(Math.max(0, from - passed), Math.max(0, to - passed)));
    passed += part.length;
    if (passed >= to) break;
  }
  return Uint8Array.from(Buffer.concat(found));
}

async function* counted(
  entries: AsyncIterable<EntryPart>,
  counts: { bytes: number; entries: number },
): AsyncGenerator<EntryPart> {
  let isFile = false;
  for await (const part of entries) {
    if (!(part instanceof Uint8Array)) {
      if (part.path !== "" || part.type !== "directory") counts.entries += 1;
      isFile = part.type === "file";
    } else if (isFile) {
      counts.bytes += part.length;
    }
    yield part;
  }
}

/** Why a transfer inside failed, by its errno. */
function ofTransfer(error: unknown, op: string, path: string): unknown {
  const name = CprgError.is(error) ? error.setup?.errnoName : undefined;
  if (name === undefined) return error;
  const found = errno(name, op, path);
  // Nothing was in the way of the whole, so it is of the archive itself.
  if (op !== "upload" || !ARCHIVE_ERRNOS.includes(name)) return found;
  return new CprgError("invalid_argument", found.message, { reason: "BAD_ARCHIVE", cause: error });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function errno(code: string, op: string, path: string): CprgError {
  return fileError(Object.assign(new Error(code), { code }), op, path);
}

function tooLarge(bytes: number, bytesMax: number): CprgError {
  return new CprgError("out_of_range", `${bytes} bytes were asked for, at most ${bytesMax}`, {
    reason: "TOO_LARGE",
    hint: "Read in parts, or use fs.Download",
  });
}
