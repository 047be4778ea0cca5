/** The rules of sandboxes and execs that every store keeps in the same way. */

import { CprgError } from "../core/errors.ts";

/** The error of an id that is taken. */
export function alreadyExists(what: "sandbox" | "exec", id: string): CprgError {
  return new CprgError("already_exists", `Cannot insert ${what} "${id}": it exists already`, {
    op: `insert ${what}`,
  });
}
