/**
 * The HTTP app: which routes there are, what every request passes through, and how errors leave. It
 * runs under a listener (`serve.ts`) or in memory (`app.request()`).
 */

import { type Context, Hono, type MiddlewareHandler } from "hono";
import { type Clock, systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { CEILING_LIMITS, type Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { JobService } from "../jobs/service.ts";
import type { KeyRing } from "../tenancy/key-ring.ts";
import type { Tenancy } from "../tenancy/tenancy.ts";
import { recordActions } from "./audit-actions.ts";
import { isKeyPath, requireAdmin, requireKey } from "./auth.ts";
import { BODY_TIMEOUT_MS } from "./body.ts";
import { BodyBudget } from "./body-budget.ts";
import type { AppEnv } from "./env.ts";
import { STREAM_STALL_MS } from "./job-stream.ts";
import { problemResponse, problemStatus } from "./problem.ts";
import { requestLog } from "./request-log.ts";
import { auditRoutes } from "./routes/audit.ts";
import { CANCEL_WAIT_MS, jobRoutes } from "./routes/jobs.ts";
import { keyRoutes } from "./routes/keys.ts";
import { languageRoutes } from "./routes/languages.ts";
import {
  type EngineFacts,
  openRoutes,
  type PrivilegeFacts,
  statusRoutes,
} from "./routes/status.ts";
import { STREAMS_MAX, STREAMS_TENANT_MAX, streamRoutes } from "./routes/stream.ts";
import { untilRevoked } from "./until-revoked.ts";

/** What an app works with. */
export interface AppOptions {
  readonly jobs: JobService;
  readonly keys: KeyRing;
  readonly tenancy: Tenancy;
  /** The audit log as it is now, sealed. */
  exportAudit(): AsyncIterable<Uint8Array>;
  readonly engine: EngineFacts;
  readonly privileges: PrivilegeFacts;
  readonly log: Log;
  readonly version: string;
  /** Ceilings of limits for keys without their own. */
  readonly ceilings?: Limits;
  readonly clock?: Clock;
  /** Bounds that tests make small. */
  readonly cancelWaitMs?: number;
  readonly bodiesBytesMax?: number;
  readonly bodiesTenantBytesMax?: number;
  readonly bodyTimeoutMs?: number;
  readonly streamsMax?: number;
  readonly streamsTenantMax?: number;
  readonly streamStallMs?: number;
}

/** Builds the app. */
export function createApp(options: AppOptions): Hono<AppEnv> {
  const { jobs, keys, tenancy, engine, privileges, log, version } = options;
  const { clock = systemClock, ceilings = CEILING_LIMITS } = options;
  const status = { jobs, engine, privileges, ceilings, version, clock };
  const bodies = {
    budget: new BodyBudget(options.bodiesBytesMax, options.bodiesTenantBytesMax),
    timeoutMs: options.bodyTimeoutMs ?? BODY_TIMEOUT_MS,
  };
  const onBroken = (c: Context<AppEnv>, error: unknown): void =>
    log.error("answer broken off", { request_id: c.get("requestId"), error });
  const app = new Hono<AppEnv>();

  app.use(requestLog(log, clock));
  app.use(safeHeaders);
  app.route("/", openRoutes(status));
  app.use("/v1/*", requireKey(keys, tenancy));
  app.use("/v1/*", recordActions(tenancy.audit));
  app.use("/v1/*", requireAdmin);
  app.use("/v1/*", untilRevoked(isKeyPath));
  app.route("/v1/keys", keyRoutes({ registry: tenancy.registry, ceilings, bodies }));
  const { exportAudit } = options;
  app.route("/v1/audit", auditRoutes({ audit: tenancy.audit, exportAudit, onBroken }));
  app.route("/v1/status", statusRoutes(status));
  app.route("/v1/languages", languageRoutes(jobs));
  app.route(
    "/v1/jobs",
    streamRoutes({
      jobs,
      log,
      streamsMax: options.streamsMax ?? STREAMS_MAX,
      streamsTenantMax: options.streamsTenantMax ?? STREAMS_TENANT_MAX,
      stallMs: options.streamStallMs ?? STREAM_STALL_MS,
    }),
  );
  app.route(
    "/v1/jobs",
    jobRoutes({
      jobs,
      ceilings,
      cancelWaitMs: options.cancelWaitMs ?? CANCEL_WAIT_MS,
      bodies,
      onBroken,
    }),
  );

  app.notFound((c) => {
    const allowed = allowedMethods(app, c.req.path);
    if (allowed.length === 0) return problemResponse(c, noSuchPath());
    c.header("Allow", allowed.join(", "));
    return problemResponse(c, wrongMethod(allowed));
  });
  app.onError((thrown, c) => {
    const error = CprgError.from(thrown, "answer request");
    if (problemStatus(error) >= 500 && error.code !== "unavailable") {
      log.error("request failed", { request_id: c.get("requestId"), error: thrown });
    }
    return problemResponse(c, error);
  });
  return app;
}

/** Answers hold what programs wrote: nobody keeps them, and no browser guesses what they are. */
const safeHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  c.header("X-Content-Type-Options", "nosniff");
  if (!c.res.headers.has("Cache-Control")) c.header("Cache-Control", "no-store");
};

/** Methods of the routes that match a path. */
function allowedMethods(app: Hono<AppEnv>, path: string): string[] {
  const methods = app.routes
    .filter(({ method, path: pattern }) => method !== "ALL" && matches(pattern, path))
    .map(({ method }) => method);
  return [...new Set(methods)].sort();
}

/** Whether a path has a pattern's parts, `:name` standing for any one. */
function matches(pattern: string, path: string): boolean {
  const wanted = pattern.split("/");
  const given = path.split("/");
  return (
    wanted.length === given.length &&
    wanted.every((part, index) =>
      part.startsWith(":") ? given[index] !== "" : part === given[index],
    )
  );
}

function noSuchPath(): CprgError {
  return new CprgError("not_found", "Cannot answer: there is no such path", {
    reason: "PATH_NOT_FOUND",
  });
}

function wrongMethod(allowed: readonly string[]): CprgError {
  return new CprgError("invalid_argument", "Cannot answer: the path has no such method", {
    reason: "METHOD_NOT_ALLOWED",
    hint: `Allowed: ${allowed.join(", ")}`,
  });
}
