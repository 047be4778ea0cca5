/** `cprg sandbox create`. */

import { requestJson, type ServerAccess } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { EXIT } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import { jsonText } from "./output.ts";
import { placementField } from "./place-flag.ts";
import { parseRunLimits } from "./run-limits.ts";
import {
  checkCount,
  idIn,
  pairsOf,
  type SandboxContext,
  type SandboxFlags,
} from "./sandbox-context.ts";

/** Building one waits for room beside the others. */
const CREATE_TIMEOUT_MS = 60_000;

/** Opens a sandbox and prints its id. */
export async function createSandbox(context: SandboxContext): Promise<number> {
  checkCount(context, 0);
  const { flags, terminal } = context;
  const body = await openSandbox(await serverAccess(flags, terminal), flags);
  await terminal.stdout.write(flags.json ? jsonText(body) : `${idIn(body, "sandbox_id")}\n`);
  return EXIT.ok;
}

/** Opens a sandbox as flags say; what the server says of it. */
export async function openSandbox(access: ServerAccess, flags: SandboxFlags): Promise<unknown> {
  const { body } = await requestJson(access, {
    method: "POST",
    path: "/v1/sandboxes",
    timeoutMs: CREATE_TIMEOUT_MS,
    body: {
      limits: parseRunLimits({ limit: flags.limit, timeout: undefined, mem: undefined }),
      env: pairsOf(flags.env, "--env"),
      labels: pairsOf(flags.label, "--label"),
      ...placementField(flags.place),
      ...(flags.idle === undefined ? {} : { idle_seconds: seconds(flags.idle, "--idle") }),
      ...(flags.lifetime === undefined
        ? {}
        : { lifetime_seconds: seconds(flags.lifetime, "--lifetime") }),
    },
  });
  return body;
}

function seconds(text: string, flag: string): number {
  if (/^\d{1,9}(?:\.\d{1,3})?$/.test(text)) return Number(text);
  throw usageError(`Cannot use ${flag} "${text}": expected seconds, such as 600`);
}
