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
import type { SandboxService } from "../sandboxes/service.ts";
import type { KeyRing } from "../tenancy/key-ring.ts";
import type { Tenancy } from "../tenancy/tenancy.ts";
import { refuseAbsent } from "./absent.ts";
import { requireAcceptable } from "./acceptable.ts";
import { recordActions } from "./audit-actions.ts";
import { isKeyPath, requireAdmin, requireKey } from "./auth.ts";
import { BODY_TIMEOUT_MS } from "./body.ts";
import { BodyBudget } from "./body-budget.ts";
import type { AppEnv } from "./env.ts";
import { JOB_ROUTES } from "./job-docs.ts";
import { ADMIN_ROUTES } from "./key-docs.ts";
import { STREAM_STALL_MS } from "./log-stream.ts";
import { checkOrigin } from "./origin-check.ts";
import { problemResponse, problemStatus } from "./problem.ts";
import { countRequests, RequestCounts } from "./request-counts.ts";
import { requestLog } from "./request-log.ts";
import { findRoute, type RouteDoc } from "./route-doc.ts";
import { auditRoutes } from "./routes/audit.ts";
import { descriptionRoutes } from "./routes/description.ts";
import { execRoutes } from "./routes/execs.ts";
import { jobEventRoutes } from "./routes/job-events.ts";
import { jobFileRoutes } from "./routes/job-files.ts";
import { CANCEL_WAIT_MS, jobRoutes } from "./routes/jobs.ts";
import { keyRoutes } from "./routes/keys.ts";
import { languageRoutes } from "./routes/languages.ts";
import { metricsRoutes, type ServerCounts } from "./routes/metrics.ts";
import { sandboxFileRoutes } from "./routes/sandbox-files.ts";
import { sandboxRoutes } from "./routes/sandboxes.ts";
import {
  type EngineFacts,
  openRoutes,
  type PrivilegeFacts,
  statusRoutes,
} from "./routes/status.ts";
import { streamRoutes } from "./routes/stream.ts";
import { type TaskParts, taskRoutes } from "./routes/tasks.ts";
import { workerTokenRoutes } from "./routes/worker-tokens.ts";
import { workerRoutes } from "./routes/workers.ts";
import { EXEC_ROUTES, SANDBOX_ROUTES } from "./sandbox-docs.ts";
import { SERVER_ROUTES } from "./server-docs.ts";
import { StreamPlaces } from "./stream-places.ts";
import { StreamedAnswers } from "./streamed.ts";
import { TASK_ROUTES } from "./task-docs.ts";
import { untilRevoked } from "./until-revoked.ts";

/** Every route of the app: one without a description here cannot be, which a test makes sure of. */
export const ROUTES: readonly RouteDoc[] = [
  ...SERVER_ROUTES,
  ...JOB_ROUTES,
  ...SANDBOX_ROUTES,
  ...EXEC_ROUTES,
  ...TASK_ROUTES,
  ...ADMIN_ROUTES,
];

/** What an app works with. */
export interface AppOptions {
  readonly jobs: JobService;
  readonly sandboxes: SandboxService;
  readonly keys: KeyRing;
  readonly tenancy: Tenancy;
  /** The audit log as it is now, sealed. */
  exportAudit(): AsyncIterable<Uint8Array>;
  readonly engine: EngineFacts;
  /** False: nothing runs on this host, and what would is answered 501. Default: true. */
  readonly hasEngine?: boolean;
  /** The control plane; without one its routes answer 501. */
  readonly tasks?: TaskParts;
  readonly privileges: PrivilegeFacts;
  readonly log: Log;
  readonly version: string;
  /** Counts of parts that the app does not know. */
  readonly counts?: ServerCounts;
  /** Ceilings of limits for keys without their own. */
  readonly ceilings?: Limits;
  /** Names that requests may call this server by; without them none is looked at. */
  readonly allowedHosts?: readonly string[];
  readonly clock?: Clock;
  /** Bounds that tests make small. */
  readonly cancelWaitMs?: number;
  readonly bodiesBytesMax?: number;
  readonly bodiesTenantBytesMax?: number;
  readonly bodiesReserveBytes?: number;
  readonly bodyTimeoutMs?: number;
  readonly streamsMax?: number;
  readonly streamsTenantMax?: number;
  readonly streamStallMs?: number;
}

/** Builds the app. */
export function createApp(options: AppOptions): Hono<AppEnv> {
  const { jobs, sandboxes, keys, tenancy, engine, privileges, log, version } = options;
  const { clock = systemClock, ceilings = CEILING_LIMITS } = options;
  const status = { jobs, engine, privileges, ceilings, version, clock };
  const bodies = {
    budget: new BodyBudget({
      bytesMax: options.bodiesBytesMax,
      tenantBytesMax: options.bodiesTenantBytesMax,
      reserveBytes: options.bodiesReserveBytes,
    }),
    timeoutMs: options.bodyTimeoutMs ?? BODY_TIMEOUT_MS,
  };
  const places = new StreamPlaces(options.streamsMax, options.streamsTenantMax);
  const streamed = new StreamedAnswers({
    places,
    onBroken: (c, error) =>
      log.error("answer broken off", { request_id: c.get("requestId"), error }),
  });
  const app = new Hono<AppEnv>();

  const requests = new RequestCounts();

  app.use(requestLog(log, clock));
  app.use(countRequests(requests, (method, path) => findRoute(ROUTES, method, path)?.path ?? null));
  app.use(safeHeaders);
  app.use(withoutBody);
  if (options.allowedHosts !== undefined) app.use(checkOrigin(options.allowedHosts));
  app.route("/", openRoutes(status));
  app.route("/", descriptionRoutes(ROUTES, version));
  app.use("/v1/*", requireKey(keys, tenancy));
  app.use("/v1/*", recordActions(tenancy.audit));
  app.use("/v1/*", requireAdmin);
  app.use("/v1/*", untilRevoked(isKeyPath));
  app.use("/v1/*", requireAcceptable(ROUTES));
  const { tasks, hasEngine = true } = options;
  app.use("/v1/*", refuseAbsent({ hasEngine, hasControlPlane: tasks !== undefined }));
  app.route("/v1/keys", keyRoutes({ registry: tenancy.registry, bodies }));
  const { exportAudit, counts = {} } = options;
  app.route("/v1/audit", auditRoutes({ audit: tenancy.audit, exportAudit, streamed }));
  app.route(
    "/v1/metrics",
    metricsRoutes({ jobs, requests, counts, control: options.tasks?.control }),
  );
  app.route("/v1/status", statusRoutes(status));
  app.route("/v1/languages", languageRoutes(jobs));
  const sockets = { log, places, stallMs: options.streamStallMs ?? STREAM_STALL_MS };
  const shared = {
    ceilings,
    cancelWaitMs: options.cancelWaitMs ?? CANCEL_WAIT_MS,
    bodies,
    streamed,
    onFailed: (c: Context<AppEnv>, error: unknown) =>
      log.error("job of a batch failed", { request_id: c.get("requestId"), error }),
  };
  app.route("/v1/jobs", streamRoutes({ jobs, sockets }));
  app.route("/v1/jobs", jobEventRoutes({ jobs, streamed }));
  app.route("/v1/jobs", jobFileRoutes({ jobs, streamed }));
  app.route("/v1/jobs", jobRoutes({ jobs, ...shared }));
  app.route("/v1/sandboxes", sandboxFileRoutes({ sandboxes, ...shared }));
  app.route("/v1/sandboxes", sandboxRoutes({ sandboxes, ...shared }));
  app.route("/v1/execs", execRoutes({ execs: sandboxes.execs, sockets, ...shared }));

  if (tasks !== undefined) {
    app.route("/v1/tasks", taskRoutes({ tasks, ...shared }));
    app.route("/v1/workers", workerRoutes(tasks.control));
    app.route("/v1/worker-tokens", workerTokenRoutes(tasks.control, bodies));
  }

  app.notFound((c) => {
    const allowed = allowedMethods(app, c.req.path);
    if (allowed.length === 0) return problemResponse(c, noSuchPath());
    c.header("Allow", allowed.join(", "));
    if (c.req.method === "OPTIONS") return c.body(null, 204);
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

/**
 * What answers HEAD may be a stream: nobody reads it, and it holds what it reads from. Its length is
 * the one that GET would have where that is known, else none is said (RFC 9110, 9.3.2): left alone,
 * the runtime would say 0, the length of the body that is not sent.
 */
const withoutBody: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  const { body, headers } = c.res;
  if (c.req.method !== "HEAD" || body === null) return;
  await body.cancel();
  if (!headers.has("Content-Length")) c.header("Transfer-Encoding", "chunked");
};

/** Methods of the routes that match a path. */
function allowedMethods(app: Hono<AppEnv>, path: string): string[] {
  const methods = app.routes
    .filter(({ method, path: pattern }) => method !== "ALL" && matches(pattern, path))
    .map(({ method }) => method);
  return [...new Set(methods)].sort();
}

/** Whether a path has a pattern's parts, `:name` standing for any one, a last `*` for the rest. */
function matches(pattern: string, path: string): boolean {
  const wanted = pattern.split("/");
  const given = path.split("/");
  const isOpen = wanted.at(-1) === "*";
  if (isOpen) wanted.pop();
  return (
    (wanted.length === given.length || (isOpen && given.length > wanted.length)) &&
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
