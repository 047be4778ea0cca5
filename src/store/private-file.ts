/** Files that their owner alone may read, such as keys: making, opening, and refusing all others. */

import { constants } from "node:fs";
import { link, open, unlink } from "node:fs/promises";
import { newId } from "../core/ids.ts";

/**
 * The text of such a file; null when there is none.
 *
 * @param refused makes the error from what is wrong with the file; `cause` is the system's, if any
 * @throws what `refused` returns, for a link and for a file that others may read
 */
export async function readPrivateFile(
  path: string,
  refused: (state: string, cause?: unknown) => Error,
): Promise<string | null> {
  const file = await openExisting(path, refused);
  if (file === null) return null;
  try {
    const { mode } = await file.stat();
    if ((mode & 0o077) !== 0) throw refused("others may read it");
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Makes such a file, complete before it has its name: link(2) fails when another process was first.
 *
 * @returns its text: ours, or that of whoever was first
 * @throws as {@link readPrivateFile}
 */
export async function createPrivateFile(
  path: string,
  text: string,
  refused: (state: string, cause?: unknown) => Error,
): Promise<string> {
  const temporary = await writeTemporary(path, text, 0o600);
  try {
    await link(temporary, path);
    return text;
  } catch (error) {
    const theirs = codeOf(error) === "EEXIST" ? await readPrivateFile(path, refused) : null;
    if (theirs === null) throw error;
    return theirs;
  } finally {
    await unlink(temporary);
  }
}

/** A file beside the one of a path, on disk with its text and its mode; its path. */
export async function writeTemporary(path: string, text: string, mode: number): Promise<string> {
  const temporary = `${path}.${newId()}`;
  const file = await open(temporary, "wx", mode);
  try {
    // The mode at opening is cut by the umask.
    await file.chmod(mode);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  return temporary;
}

async function openExisting(path: string, refused: (state: string, cause: unknown) => Error) {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    const code = codeOf(error);
    if (code === "ENOENT") return null;
    throw refused(code ?? "unreadable", error);
  }
}

/** The name that the system gives an error, such as `EACCES`; null for any other. */
export function codeOf(error: unknown): string | null {
  return error instanceof Error && "code" in error ? String(error.code) : null;
}
