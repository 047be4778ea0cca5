/** What may be submitted: checked once, before anything of it is kept. */

import { checkClaimEnv } from "../core/claim-rules.ts";
import { invalid } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import { checkedJson } from "../core/json-value.ts";
import { checkedLabels } from "../core/program-rules.ts";
import { checkRef, checkRepositoryUrl } from "../core/repository-rules.ts";
import type { Task } from "../core/task.ts";
import { DEFAULT_TENANT, TENANT_NAME } from "../tenancy/keys.ts";
import type { SubmitOptions } from "./contract.ts";
import type { Env } from "./env-seal.ts";

/** As the worker has it (PROTOCOL.md section 8). */
const TASK_ID = /^[A-Za-z0-9._-]{1,128}$/;

/** A task that may wait, and its environment. */
export interface Submitted {
  readonly task: Task;
  readonly env: Env;
}

/**
 * Makes a task.
 *
 * @param runners names of those that are set
 * @throws CprgError `invalid_argument` naming the field
 */
export function submitted(
  input: unknown,
  options: SubmitOptions,
  { runners, at }: { readonly runners: readonly string[]; readonly at: number },
): Submitted {
  const { id = newId(), tenant = DEFAULT_TENANT, labels = {}, env = {} } = options;
  const { repoUrl = null, ref = null } = options;
  if (!TASK_ID.test(id)) throw invalid("id", "Cannot use id: not 1 to 128 of A-Z a-z 0-9 . _ -");
  if (!TENANT_NAME.test(tenant)) throw invalid("tenant", "Cannot use tenant: not a name");
  const runner = runnerOf(options.runner, runners);
  checkedLabels(labels);
  checkClaimEnv(env);
  if (repoUrl === null && ref !== null) throw invalid("ref", "Cannot use ref without repo_url");
  if (repoUrl !== null) checkRepositoryUrl(repoUrl);
  if (ref !== null) checkRef(ref);
  const task: Task = {
    id,
    tenant,
    status: "queued",
    reason: null,
    runner,
    input: checkedJson("input", input),
    labels: { ...labels },
    repoUrl,
    ref,
    attempts: 0,
    epoch: 0,
    workerId: null,
    result: null,
    error: null,
    createdAt: at,
    startedAt: null,
    finishedAt: null,
  };
  return { task, env: { ...env } };
}

function runnerOf(asked: string | undefined, runners: readonly string[]): string {
  const [only, second] = runners;
  const runner = asked ?? (second === undefined ? only : undefined);
  if (runner !== undefined && runners.includes(runner)) return runner;
  const names = runners.length === 0 ? "none is set" : `one of ${runners.join(", ")}`;
  if (asked === undefined) throw invalid("runner", `Cannot submit without a runner: ${names}`);
  throw invalid("runner", `Cannot use this runner: ${names}`);
}
