/**
 * The operational error of the whole product. An outcome of a guest program is data and never
 * thrown; a bug is a failed `assert`. Each edge (HTTP, CLI, bridge) converts a CprgError once,
 * from the table below.
 */

/** The closed set of codes: the names of gRPC's status codes (grpc/grpc doc/statuscodes.md). */
export type ErrorCode =
  | "invalid_argument"
  | "failed_precondition"
  | "out_of_range"
  | "unauthenticated"
  | "permission_denied"
  | "not_found"
  | "already_exists"
  | "aborted"
  | "resource_exhausted"
  | "canceled"
  | "unknown"
  | "internal"
  | "data_loss"
  | "unimplemented"
  | "unavailable"
  | "deadline_exceeded";

/** HTTP status of each code (connect's `http-status.ts`). */
export const HTTP_STATUS: Readonly<Record<ErrorCode, number>> = {
  invalid_argument: 400,
  failed_precondition: 400,
  out_of_range: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 409,
  aborted: 409,
  resource_exhausted: 429,
  canceled: 499,
  unknown: 500,
  internal: 500,
  data_loss: 500,
  unimplemented: 501,
  unavailable: 503,
  deadline_exceeded: 504,
};

/** What failed in the kernel, when a step of a sandbox's set-up did. */
export interface SetupFailure {
  /** Name of the step, e.g. `mount`. */
  readonly step: string;
  /** Which item of the step (which mount, which descriptor), or 0. */
  readonly index: number;
  /** errno value. */
  readonly errno: number;
  /** Its name, e.g. `ENOENT`. */
  readonly errnoName: string;
  /** What the step was about, where that is known, e.g. the path of a mount. */
  readonly subject?: string;
}

/** What a CprgError carries beside its message. */
export interface CprgErrorOptions {
  /** The operation that failed, as a verb phrase: `create sandbox`. */
  readonly op?: string;
  /** A stable UPPER_SNAKE word for programs: `QUEUE_FULL`. */
  readonly reason?: string;
  /** The field of the request that is at fault: `limits.wall_seconds`. */
  readonly field?: string;
  /** What the operator or the caller can do next. */
  readonly hint?: string;
  /** Whether the same request may succeed later, unchanged. */
  readonly retryable?: boolean;
  /** When it may succeed: the `Retry-After` of HTTP, in seconds. */
  readonly retryAfterSeconds?: number;
  /** The failed step of a sandbox's set-up. */
  readonly setup?: SetupFailure;
  /** The original error: for the log, never sent to a client. */
  readonly cause?: unknown;
}

const BRAND = Symbol.for("cprg.error");

/** An operational failure with a code from the closed table. */
export class CprgError extends Error {
  readonly code: ErrorCode;
  readonly op: string | undefined;
  readonly reason: string | undefined;
  readonly field: string | undefined;
  readonly hint: string | undefined;
  readonly retryable: boolean;
  readonly retryAfterSeconds: number | undefined;
  readonly setup: SetupFailure | undefined;
  /** Survives two copies of this module in one program, where `instanceof` does not. */
  readonly [BRAND] = true;

  constructor(code: ErrorCode, message: string, options: CprgErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.op = options.op;
    this.reason = options.reason;
    this.field = options.field;
    this.hint = options.hint;
    this.retryable = options.retryable ?? (code === "unavailable" || code === "aborted");
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.setup = options.setup;
  }

  /** Whether a value is a CprgError, of this copy of the module or another. */
  static is(value: unknown): value is CprgError {
    return typeof value === "object" && value !== null && BRAND in value;
  }

  /** The one normaliser: a CprgError stays itself, anything else becomes `internal`. */
  static from(value: unknown, op?: string): CprgError {
    if (CprgError.is(value)) return value;
    const message = value instanceof Error ? value.message : String(value);
    return new CprgError("internal", message, {
      ...(op === undefined ? {} : { op }),
      cause: value,
    });
  }
}

Object.defineProperty(CprgError.prototype, "name", { value: "CprgError" });

/** A 400 that names the field at fault. */
export function invalid(field: string, message: string, hint?: string): CprgError {
  return new CprgError("invalid_argument", message, {
    field,
    ...(hint === undefined ? {} : { hint }),
  });
}

/** A condition that only a bug of ours can break. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`BUG(cprg): ${message}`);
}
