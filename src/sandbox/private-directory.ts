/** Directories whose content the server, as root, acts upon: nobody else may write there. */

import { lstatSync, statSync } from "node:fs";
import { CprgError } from "../core/errors.ts";

const WRITABLE_BY_OTHERS = 0o022;

/** What is to be done there, and how the refusal is called. */
export interface PrivateUse {
  /** A verb phrase that the path follows: `use the run directory`. */
  readonly op: string;
  readonly reason: string;
}

/** @throws CprgError `failed_precondition` unless it is a directory of this user, closed to others */
export function checkPrivate(directory: string, use: PrivateUse): void {
  const status = statSync(directory, { throwIfNoEntry: false });
  const own = process.geteuid?.() ?? 0;
  const link = lstatSync(directory, { throwIfNoEntry: false });
  if (link?.isSymbolicLink() && link.uid !== own && link.uid !== 0) {
    throw refusal(`it is a link of user ${link.uid}`);
  }
  if (status === undefined || !status.isDirectory()) throw refusal("it is no directory");
  if (status.uid !== own) throw refusal(`it belongs to user ${status.uid}, not to ${own}`);
  if ((status.mode & WRITABLE_BY_OTHERS) !== 0) throw refusal("other users may write to it");

  function refusal(why: string): CprgError {
    return new CprgError("failed_precondition", `Cannot ${use.op} ${directory}: ${why}`, {
      reason: use.reason,
      hint: `chown ${own} ${directory} && chmod 700 ${directory}, once you know who made it; or name another directory`,
    });
  }
}
