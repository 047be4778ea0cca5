/** `/`, `/healthz` and `/v1/status`: what this server is, whether it works, and how strong its walls are. */

import { Hono } from "hono";
import type { Clock } from "../../core/clock.ts";
import type { Layers } from "../../core/event.ts";
import { DEFAULT_LIMITS, type Limits } from "../../core/limits.ts";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { readQuery } from "../query.ts";

/** What the server says of its engine. */
export interface EngineFacts {
  /** `ns`, `rootless` or `off`. */
  readonly mode: string;
  readonly layers: Layers;
  /** Guarantees that do not hold. */
  readonly missing: readonly string[];
  /** Id of this instance. */
  readonly instance: string;
}

/** What the server's own process can do on its host. */
export interface PrivilegeFacts {
  /** Whether everything but `capabilities` was given up for good. */
  readonly isReduced: boolean;
  readonly capabilities: readonly string[];
}

/** What the routes work with. */
export interface StatusRoutesOptions {
  readonly jobs: JobService;
  readonly engine: EngineFacts;
  readonly privileges: PrivilegeFacts;
  readonly ceilings: Limits;
  readonly version: string;
  readonly clock: Clock;
}

/** Answers that need no key. */
export function openRoutes({ jobs, engine, version }: StatusRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/", (c) => c.json({ name: "cprg", version, api: "/v1", health: "/healthz" }));
  app.get("/healthz", async (c) => {
    const trouble = await jobs.trouble();
    const health = { ok: trouble === null, sandbox: engine.mode, missing: engine.missing };
    if (trouble === null) return c.json(health);
    return c.json({ ...health, reason: trouble.reason ?? trouble.code.toUpperCase() }, 503);
  });
  return app;
}

/** `GET /v1/status`. */
export function statusRoutes(options: StatusRoutesOptions): Hono<AppEnv> {
  const { jobs, engine, privileges, ceilings, version, clock } = options;
  const startedMs = clock.monotonicMs();
  const app = new Hono<AppEnv>();
  app.get("/", async (c) => {
    readQuery(c, []);
    const { role, tenant } = c.get("principal");
    const counts = await jobs.counts(role === "admin" ? undefined : tenant);
    return c.json({
      version,
      instance: engine.instance,
      uptime_seconds: Math.floor((clock.monotonicMs() - startedMs) / 1000),
      sandbox: engine.mode,
      layers: engine.layers,
      missing: engine.missing,
      privileges: { reduced: privileges.isReduced, capabilities: privileges.capabilities },
      slots: counts.slots,
      tenant_concurrency: counts.tenantConcurrency,
      running: counts.running,
      queued: counts.queued,
      limits: { defaults: DEFAULT_LIMITS, ceilings },
    });
  });
  return app;
}
