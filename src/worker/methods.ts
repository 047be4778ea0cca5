/** All that a worker serves, in one table. */

import { Handlers } from "../bridge/handlers.ts";
import { READ_BYTES_MAX } from "../bridge/limits.ts";
import type { ClaimHolder } from "./claim-holder.ts";
import { type ClaimMethodsOptions, serveClaims } from "./claim-methods.ts";
import { serveExecs } from "./exec-methods.ts";
import { serveFiles } from "./fs-methods.ts";
import { type JobRunner, serveJobs } from "./job-methods.ts";

/** What the methods work with. */
export interface WorkerMethodsOptions extends Omit<ClaimMethodsOptions, "holder"> {
  readonly holder: ClaimHolder;
  /** Variables of every exec, beneath those of its claim. */
  readonly variables: Readonly<Record<string, string>>;
  /** Default 3 MiB. */
  readonly readBytesMax?: number;
  /** Who runs jobs; `job.Run` is served where there is one. */
  readonly jobs?: JobRunner | undefined;
}

/** The table. */
export function workerHandlers(options: WorkerMethodsOptions): Handlers {
  const handlers = new Handlers();
  serveClaims(handlers, options);
  serveExecs(handlers, options);
  serveFiles(handlers, { ...options, readBytesMax: options.readBytesMax ?? READ_BYTES_MAX });
  const { holder, jobs } = options;
  if (jobs !== undefined) serveJobs(handlers, { holder, jobs });
  return handlers;
}
