/** Errors of the operating system that reach the edge as they are: full disks, forbidden paths. */

import { CprgError } from "../core/errors.ts";

/**
 * The operational error that a system call's error is: a write that failed is a failure (1), what
 * cannot be opened or made is a precondition that does not hold (2).
 *
 * @returns null for everything else, which is a bug
 */
export function fromOsError(thrown: unknown): CprgError | null {
  if (!(thrown instanceof Error)) return null;
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  if (typeof code !== "string" || typeof syscall !== "string") return null;
  const isWrite = syscall === "write";
  const text = isWrite ? `Cannot write output: ${code}` : `Cannot go on: ${thrown.message}`;
  return new CprgError(isWrite ? "unknown" : "failed_precondition", text, { cause: thrown });
}

/** The error of a file that cannot be written, by its name; codes as {@link fromOsError}. */
export function unwritable(path: string, cause: unknown): CprgError {
  const { code, syscall } = cause as NodeJS.ErrnoException;
  return new CprgError(
    syscall === "write" ? "unknown" : "failed_precondition",
    `Cannot write "${path}": ${code ?? "unknown error"}`,
    { cause },
  );
}
