/** Parts of the product that a server was started without: whatever they would answer is 501. */

import type { MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { AppEnv } from "./env.ts";

const RUNS: readonly string[] = ["jobs", "sandboxes", "execs"];
/** Of this host: what workers have is theirs to say. */
const IS_HERE: readonly string[] = ["languages"];
const RUNS_ON_WORKERS: readonly string[] = ["tasks", "workers", "worker-tokens"];

/** Which parts a server has. */
export interface PresentParts {
  /** It runs programs on its own host. */
  readonly hasEngine: boolean;
  /** It has a control plane. */
  readonly hasControlPlane: boolean;
}

/** Answers for what is absent. @throws CprgError `unimplemented`, with reason NO_ENGINE or NO_BRIDGE */
export function refuseAbsent(parts: PresentParts): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const [, , part = ""] = c.req.path.split("/");
    const canRun = parts.hasEngine || parts.hasControlPlane;
    if (!canRun && RUNS.includes(part)) throw noEngine();
    if (!parts.hasEngine && IS_HERE.includes(part)) throw noEngine();
    if (!parts.hasControlPlane && RUNS_ON_WORKERS.includes(part)) throw noBridge();
    await next();
  };
}

function noEngine(): CprgError {
  const message = "Cannot answer: this server is a control plane, and runs nothing on its own host";
  return new CprgError("unimplemented", message, {
    reason: "NO_ENGINE",
    hint: "Jobs, sandboxes and tasks run on its workers; languages are those of each worker",
  });
}

function noBridge(): CprgError {
  return new CprgError("unimplemented", "Cannot answer: this server listens for no workers", {
    reason: "NO_BRIDGE",
    hint: "Start it with --bridge-addr or CPRG_BRIDGE_ADDR",
  });
}
