/** Errors on their way out of the Worker: SQLite's become ours, ours become plain objects. */

import { CprgError, type CprgErrorOptions, type ErrorCode } from "../core/errors.ts";

/** A CprgError as structured clone can carry it. */
export interface WireError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly options: CprgErrorOptions;
}

/** Makes an error ready for postMessage; the cause is kept as text. */
export function toWire(error: unknown): WireError {
  const { code, message, op, reason, field, hint, retryable, cause } = fromSqlite(error);
  const given = { op, reason, field, hint, cause: cause === undefined ? undefined : text(cause) };
  const options = Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  );
  return { code, message, options: { ...options, retryable } };
}

function text(cause: unknown): string {
  return cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
}

/** Makes an error of what postMessage brought. */
export function fromWire(wire: WireError): CprgError {
  return new CprgError(wire.code, wire.message, wire.options);
}

/**
 * SQLite's result codes (sqlite.org/rescode.html) as errors of ours. The -shm file grows by
 * ftruncate, whose failure on a full disk is IOERR_SHMSIZE rather than FULL.
 *
 * @param path of the file, where one is being opened: a message for the operator names it
 */
export function fromSqlite(error: unknown, path?: string): CprgError {
  const code = sqliteCode(error);
  const store = path === undefined ? "the store" : `the store "${path}"`;
  if (code === null) return fromErrno(error, store) ?? CprgError.from(error, "use store");
  if (code === "SQLITE_FULL" || code === "SQLITE_IOERR_SHMSIZE") {
    return diskFull(store, error);
  }
  if (code.startsWith("SQLITE_BUSY") || code.startsWith("SQLITE_LOCKED")) {
    return new CprgError("unavailable", `Cannot use ${store}: another process holds its file`, {
      reason: "STORE_BUSY",
      cause: error,
    });
  }
  if (code.startsWith("SQLITE_CANTOPEN") || code.startsWith("SQLITE_READONLY")) {
    return unwritable(store, error);
  }
  if (code === "SQLITE_NOTADB" || code.startsWith("SQLITE_CORRUPT")) {
    return new CprgError("data_loss", `Cannot use ${store}: its file is damaged or no database`, {
      reason: "STORE_DAMAGED",
      hint: "Restore the file from a backup, or move it away to start anew",
      cause: error,
    });
  }
  const message = error instanceof Error ? error.message : code;
  return new CprgError("internal", `Cannot use ${store}: ${message}`, {
    reason: code,
    cause: error,
  });
}

/** Failures of the calls beside SQLite's, such as chmod(2); null for what says nothing of the disk. */
function fromErrno(error: unknown, store: string): CprgError | null {
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "EROFS" || code === "EACCES" || code === "EPERM") return unwritable(store, error);
  if (code === "ENOSPC" || code === "EDQUOT") return diskFull(store, error);
  return null;
}

function unwritable(store: string, cause: unknown): CprgError {
  return new CprgError("failed_precondition", `Cannot use ${store}: no way to write its file`, {
    reason: "STORE_UNWRITABLE",
    hint: "The data directory and its files must be writable for this user",
    cause,
  });
}

/** What a write meets on a full disk. */
export function diskFull(store = "the store", cause?: unknown): CprgError {
  return new CprgError("resource_exhausted", `Cannot write to ${store}: the disk is full`, {
    reason: "DISK_FULL",
    hint: "Free space where the data directory is",
    ...(cause === undefined ? {} : { cause }),
  });
}

function sqliteCode(error: unknown): string | null {
  if (!(error instanceof Error) || error.name !== "SQLiteError") return null;
  return "code" in error && typeof error.code === "string" ? error.code : "SQLITE_ERROR";
}
