/** What a claim may carry beside its repository (PROTOCOL.md section 9): both ends keep the same rules. */

import { invalid } from "./errors.ts";
import { checkEnv } from "./program-rules.ts";

/** Variables of a claim, and their bytes in all. */
export const CLAIM_ENV_MAX = 256;
export const CLAIM_ENV_BYTES_MAX = 64 * 1024;

/** @throws CprgError `invalid_argument` naming the variable, or `env` when it is too much */
export function checkClaimEnv(env: Readonly<Record<string, string>>): void {
  const entries = Object.entries(env);
  const bytes = entries.reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  if (entries.length > CLAIM_ENV_MAX || bytes > CLAIM_ENV_BYTES_MAX) {
    throw invalid(
      "env",
      `Cannot use env: ${entries.length} variables, ${bytes} bytes; at most ${CLAIM_ENV_MAX} and ${CLAIM_ENV_BYTES_MAX}`,
    );
  }
  checkEnv(env);
}
