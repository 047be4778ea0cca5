/** A job's sealed log, from a server into a file that appears only when it is whole. */

import { access, constants, open, rename, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { CprgError } from "../core/errors.ts";
import { download, type ServerAccess } from "./client.ts";
import { jobPath } from "./client-stream.ts";
import { unwritable } from "./os-error.ts";

/** A log of a long run is large. */
const EXPORT_TIMEOUT_MS = 3_600_000;

/** Downloads the export of a job. */
export async function saveExport(access: ServerAccess, id: string, path: string): Promise<void> {
  const request = { path: `${jobPath(id)}/replay?format=ndjson`, timeoutMs: EXPORT_TIMEOUT_MS };
  await writeWhole(path, async (write) => await download(access, request, write));
}

/**
 * Looks whether a file can be written, before the work that it is to hold.
 *
 * @throws CprgError `failed_precondition` naming it
 */
export async function checkPlace(path: string): Promise<void> {
  try {
    const there = await stat(path).catch(() => null);
    if (there?.isDirectory()) throw Object.assign(new Error("a directory"), { code: "EISDIR" });
    // A device or pipe is written to, and what it says shows then.
    if (there === null || there.isFile()) await access(dirname(path), constants.W_OK);
  } catch (error) {
    throw unwritable(path, error);
  }
}

/** Writes a file beside its place and renames it there: nobody finds half of it. */
export async function writeWhole(
  path: string,
  fill: (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>,
): Promise<void> {
  try {
    // A device or pipe is written to; a rename would replace it.
    if (await isSpecial(path)) return await writeTo(path, "w", fill);
    const staged = `${path}.${process.pid}.part`;
    try {
      await writeTo(staged, "wx", fill);
      await rename(staged, path);
    } catch (error) {
      await rm(staged, { force: true });
      throw error;
    }
  } catch (error) {
    throw CprgError.is(error) ? error : unwritable(path, error);
  }
}

async function writeTo(
  path: string,
  flags: "w" | "wx",
  fill: (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>,
): Promise<void> {
  const file = await open(path, flags);
  try {
    await fill(async (bytes) => await file.appendFile(bytes));
  } finally {
    await file.close();
  }
}

async function isSpecial(path: string): Promise<boolean> {
  try {
    return !(await stat(path)).isFile();
  } catch {
    // It is not there yet; whatever else is wrong shows when it is written.
    return false;
  }
}
