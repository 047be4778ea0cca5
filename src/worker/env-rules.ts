/** Variables as they come over the wire (PROTOCOL.md section 9): of a claim, and of one exec. */

import { invalid } from "../core/errors.ts";

/** Variables of one request, and their bytes in all. */
export const ENV_VARIABLES_MAX = 256;
export const ENV_BYTES_MAX = 64 * 1024;

/** @throws CprgError `invalid_argument` naming the variable at fault */
export function checkWireEnv(env: Readonly<Record<string, string>>): void {
  const entries = Object.entries(env);
  const bytes = entries.reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  if (entries.length > ENV_VARIABLES_MAX || bytes > ENV_BYTES_MAX) {
    throw invalid(
      "env",
      `Cannot use env: ${entries.length} variables, ${bytes} bytes; at most ${ENV_VARIABLES_MAX} and ${ENV_BYTES_MAX}`,
    );
  }
  for (const [name, value] of entries) {
    if (name !== "" && !/[=\0]/.test(name) && !value.includes("\0")) continue;
    const shown = JSON.stringify(name.slice(0, 64));
    throw invalid("env", `Cannot use variable ${shown}: empty, or with = or NUL`);
  }
}
