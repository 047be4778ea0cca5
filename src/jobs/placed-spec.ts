/** What a job for a worker may be, looked at before it is queued. */

import { invalid } from "../core/errors.ts";
import type { JobSpec } from "../core/job.ts";
import { base64Bytes, utf8Bytes } from "../core/text-rules.ts";
import { checkLanguageName } from "../sandbox/languages.ts";

/**
 * Bytes of code, files and standard input together: they travel in one request (proto/PROTOCOL.md
 * section 4), beside arguments and variables.
 */
export const PLACED_BYTES_MAX = 3 * 1024 * 1024;

/** @throws CprgError `invalid_argument` for a language that no worker has, and for too many bytes */
export function checkPlacedSpec({ language, code, files, stdinBase64 }: JobSpec): void {
  if (code !== null) checkLanguageName(language);
  const contents = files.reduce((sum, { base64 }) => sum + base64Bytes("files", base64), 0);
  const input = stdinBase64 === null ? 0 : base64Bytes("stdin", stdinBase64);
  const bytes = utf8Bytes(code ?? "") + contents + input;
  if (bytes <= PLACED_BYTES_MAX) return;
  throw invalid(
    "placement",
    `Cannot place job on a worker: code, files and stdin are ${bytes} bytes, at most ${PLACED_BYTES_MAX}`,
    "Open a sandbox on a worker, and put large files into it",
  );
}
