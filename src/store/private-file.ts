/** Files that their owner alone may read, such as keys: opening one, and refusing all others. */

import { constants } from "node:fs";
import { open } from "node:fs/promises";

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
