/** The directory that holds the keys and, by default, the database. */

import { mkdir } from "node:fs/promises";
import { CprgError } from "../core/errors.ts";
import { checkPrivate } from "../sandbox/private-directory.ts";

/**
 * Makes it with mode 0700, or looks at the one that is there: whoever else could write in it could
 * put another key in the place of the server's.
 *
 * @throws CprgError `failed_precondition` naming it
 */
export async function openDataDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new CprgError("failed_precondition", `Cannot make the data directory ${path}: ${code}`, {
      reason: "DATA_DIR",
      hint: "Name one that can be made with --data-dir or CPRG_DATA_DIR",
      cause,
    });
  }
  checkPrivate(path, { op: "use the data directory", reason: "DATA_DIR" });
}
