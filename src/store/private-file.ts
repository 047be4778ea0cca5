/**
 * Files that their owner alone may read, such as keys: opening one, and refusing all others; and
 * making one, which is whole before it has its name.
 */

import { constants } from "node:fs";
import { link, open, rename, unlink } from "node:fs/promises";
import { newId } from "../core/ids.ts";
import { diskFull } from "./wire-error.ts";

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

/** A text and the mode of its file, whatever the umask. */
interface NewFile {
  readonly text: string;
  readonly mode: number;
}

/**
 * Makes a file, unless there is one. A death or a full disk in between leaves none.
 *
 * @returns false when there is one
 * @throws CprgError `resource_exhausted` with reason DISK_FULL
 */
export async function createWhole(path: string, file: NewFile): Promise<boolean> {
  const temporary = await writeBeside(path, file);
  try {
    await link(temporary, path);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw fullOr(error, path);
  } finally {
    await unlink(temporary);
  }
}

/** Makes a file, or puts it in the place of the one that is there. @throws as {@link createWhole} */
export async function replaceWhole(path: string, file: NewFile): Promise<void> {
  await rename(await writeBeside(path, file), path);
}

async function writeBeside(path: string, { text, mode }: NewFile): Promise<string> {
  const temporary = `${path}.${newId()}`;
  try {
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
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw fullOr(error, path);
  }
}

function fullOr(error: unknown, path: string): unknown {
  const code = codeOf(error);
  return code === "ENOSPC" || code === "EDQUOT" ? diskFull(`"${path}"`, error) : error;
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
