/** What `worker.Claim` asks for, checked: nothing of it has an effect before it is right. */

import { invalid } from "../core/errors.ts";
import { checkRef, checkRepositoryUrl } from "../core/repository-rules.ts";
import type { ClaimRequest } from "../gen/messages.ts";
import { type ClaimKey, checkClaimKey } from "./claim-table.ts";
import { checkWireEnv } from "./env-rules.ts";

/** A claim that may be made. */
export interface ClaimOrder {
  readonly key: ClaimKey;
  readonly env: Readonly<Record<string, string>>;
  readonly repository: { readonly url: string; readonly ref: string | null } | null;
  /** 0: silence does not end it. */
  readonly ttlMs: number;
  /** As they were asked for, by name; null: the worker's own. */
  readonly limits: Readonly<Record<string, number>> | null;
}

/** @throws CprgError `invalid_argument` naming the field */
export function parseClaim(request: ClaimRequest): ClaimOrder {
  const { taskId, epoch, repoUrl, ref, limits } = request;
  const key = { taskId, epoch };
  checkClaimKey(key);
  const env = { ...request.env };
  checkWireEnv(env);
  if (repoUrl === "" && ref !== "") throw invalid("ref", "Cannot use ref without repo_url");
  if (repoUrl !== "") checkRepositoryUrl(repoUrl);
  if (ref !== "") checkRef(ref);
  return {
    key,
    env,
    repository: repoUrl === "" ? null : { url: repoUrl, ref: ref === "" ? null : ref },
    ttlMs: request.claimTtlSeconds * 1000,
    limits: Object.keys(limits).length === 0 ? null : { ...limits },
  };
}
