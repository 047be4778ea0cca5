/** What went wrong with a path, as the codes of proto/PROTOCOL.md section 9, "Files". */

import { CprgError, type ErrorCode } from "../core/errors.ts";
import { NativeError } from "../sandbox/native.ts";
import { errnoName } from "../sandbox/steps.ts";

const CODES: Readonly<Record<string, readonly [ErrorCode, string | undefined, string]>> = {
  ENOENT: ["not_found", undefined, "nothing is there"],
  EEXIST: ["already_exists", undefined, "something is there"],
  ENOTDIR: ["failed_precondition", "NOT_DIRECTORY", "not a directory"],
  EISDIR: ["failed_precondition", "IS_DIRECTORY", "a directory is there"],
  ENOTEMPTY: ["failed_precondition", "NOT_EMPTY", "the directory is not empty"],
  EINVAL: ["failed_precondition", undefined, "it cannot be done there"],
  EXDEV: ["permission_denied", "PATH_ESCAPES", "the path leads out"],
  ELOOP: ["failed_precondition", "IS_LINK", "a link is there"],
  EACCES: ["permission_denied", undefined, "no right"],
  EPERM: ["permission_denied", undefined, "no right"],
  EROFS: ["permission_denied", undefined, "the file system is read-only"],
  ENOSPC: ["resource_exhausted", "DISK_FULL", "no space is left"],
  EDQUOT: ["resource_exhausted", "DISK_FULL", "no space is left"],
  EFBIG: ["resource_exhausted", "DISK_FULL", "the file system takes no file so large"],
  EMFILE: ["resource_exhausted", undefined, "too many files are open"],
  ENFILE: ["resource_exhausted", undefined, "too many files are open"],
  ENAMETOOLONG: ["invalid_argument", undefined, "a name is too long"],
  EAGAIN: ["aborted", undefined, "the path changed all the time"],
};

/** Name of the errno of a failed call, or empty. */
export function errnoOf(error: unknown): string {
  if (error instanceof NativeError) return errnoName(error.errno);
  const code = (error as NodeJS.ErrnoException | null)?.code;
  return typeof code === "string" && /^E[A-Z0-9]+$/.test(code) ? code : "";
}

/** The error of an operation on a path: a CprgError as it is, a failed call by its errno. */
export function fileError(error: unknown, op: string, path: string): CprgError {
  if (CprgError.is(error)) return error;
  const name = codeOf(errnoOf(error), op);
  const shown = JSON.stringify(path.length > 256 ? `${path.slice(0, 256)}…` : path);
  const [code, reason, why] = CODES[name] ?? ["internal", undefined, name || "it failed"];
  return new CprgError(code, `Cannot ${op} ${shown}: ${why}`, {
    ...(reason === undefined ? {} : { reason }),
    cause: error,
  });
}

/** Of a rename, what is in its way is so whatever it is, and another file system is no way out. */
function codeOf(name: string, op: string): string {
  if (!op.startsWith("rename")) return name;
  if (["EISDIR", "ENOTEMPTY", "ENOTDIR"].includes(name)) return "EEXIST";
  return name === "EXDEV" ? "EINVAL" : name;
}

/** A path that leads out of root and home. */
export function pathEscapes(path: string): CprgError {
  return fileError(Object.assign(new Error("beneath"), { code: "EXDEV" }), "use", path);
}
