/** Pipes, sockets and terminals that the kernel gives none of, mostly because a limit is reached. */

import { NativeError } from "./native.ts";
import { stepError } from "./steps.ts";

const DESCRIPTORS_STEP = 19;

/**
 * The error of what was to be opened for a sandbox.
 *
 * @param op a verb phrase: `start a sandbox`
 * @returns a CprgError with `setup` for a call that the kernel refused, anything else as it is
 */
export function descriptorError(error: unknown, op: string): unknown {
  if (!(error instanceof NativeError)) return error;
  const failure = { step: DESCRIPTORS_STEP, index: 0, errno: error.errno };
  return stepError(failure, { op, subject: error.call });
}
