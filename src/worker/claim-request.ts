/** What `worker.Claim` asks for, checked: nothing of it has an effect before it is right. */

import { invalid } from "../core/errors.ts";
import { checkEnv } from "../core/program-rules.ts";
import type { ClaimRequest } from "../gen/messages.ts";
import { type ClaimKey, checkClaimKey } from "./claim-table.ts";
import { checkRef, checkRepositoryUrl } from "./repository-rules.ts";

/** Variables of a claim, and their bytes in all (PROTOCOL.md section 9). */
export const CLAIM_ENV_MAX = 256;
export const CLAIM_ENV_BYTES_MAX = 64 * 1024;

/** A claim that may be made. */
export interface ClaimOrder {
  readonly key: ClaimKey;
  readonly env: Readonly<Record<string, string>>;
  readonly repository: { readonly url: string; readonly ref: string | null } | null;
  /** 0: silence does not end it. */
  readonly ttlMs: number;
}

/** @throws CprgError `invalid_argument` naming the field */
export function parseClaim(request: ClaimRequest): ClaimOrder {
  const { taskId, epoch, repoUrl, ref } = request;
  const key = { taskId, epoch };
  checkClaimKey(key);
  const env = { ...request.env };
  checkEnvironment(env);
  if (repoUrl === "" && ref !== "") throw invalid("ref", "Cannot use ref without repo_url");
  if (repoUrl !== "") checkRepositoryUrl(repoUrl);
  if (ref !== "") checkRef(ref);
  return {
    key,
    env,
    repository: repoUrl === "" ? null : { url: repoUrl, ref: ref === "" ? null : ref },
    ttlMs: request.claimTtlSeconds * 1000,
  };
}

function checkEnvironment(env: Readonly<Record<string, string>>): void {
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
