/** `/v1/sandboxes`: open, list, look, end, and run programs. Files have their own file. */

import { type Context, Hono } from "hono";
import { invalid } from "../../core/errors.ts";
import { LIST_LIMIT_MAX } from "../../core/job.ts";
import type { Limits } from "../../core/limits.ts";
import type { SandboxService } from "../../sandboxes/service.ts";
import { sandboxSpec } from "../../sandboxes/spec.ts";
import { execView, sandboxView } from "../../sandboxes/views.ts";
import { type BodyRules, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { LIST_LIMIT_DEFAULT } from "../parameters.ts";
import { type Query, readNumber, readQuery } from "../query.ts";
import { execRequest, sandboxRequest } from "../sandbox-schemas.ts";
import { wantsEvents } from "../sse.ts";
import { textResponse } from "../streamed.ts";
import { execEvents, readWait } from "./execs.ts";
import { patiently } from "./jobs.ts";

/** What the routes work with. */
export interface SandboxRoutesOptions {
  readonly sandboxes: SandboxService;
  /** The server's ceilings, for keys without their own. */
  readonly ceilings: Limits;
  readonly bodies: BodyRules;
  /** A body that broke off while it was sent. */
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

/** The routes beneath `/v1/sandboxes`, but for files. */
export function sandboxRoutes(options: SandboxRoutesOptions): Hono<AppEnv> {
  const { sandboxes } = options;
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const { tenant, ceilings } = c.get("principal");
    const request = sandboxRequest(await readJson(c, options.bodies));
    const spec = sandboxSpec(request, ceilings ?? options.ceilings);
    const sandbox = await patiently(c, 0, ({ signal }) =>
      sandboxes.create(tenant, spec, { signal }),
    );
    c.header("Location", `/v1/sandboxes/${sandbox.id}`);
    return c.json(sandboxView(sandbox), 201);
  });

  app.get("/", async (c) => {
    const query = readQuery(c, ["limit", "cursor", "status"]);
    const page = await sandboxes.list({
      tenant: c.get("principal").tenant,
      ...pageOf(query),
      isOpen: isOpenWanted(query),
    });
    const views = page.sandboxes.map(sandboxView);
    return c.json({ sandboxes: views, next_cursor: page.nextCursor });
  });

  app.get("/:id", async (c) => {
    readQuery(c, []);
    return c.json(sandboxView(await sandboxes.get(c.get("principal").tenant, c.req.param("id"))));
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    const { tenant } = c.get("principal");
    const sandbox = await patiently(c, 0, () => sandboxes.end(tenant, c.req.param("id")));
    return c.json(sandboxView(sandbox));
  });

  app.get("/:id/execs", async (c) => {
    const query = readQuery(c, ["limit", "cursor"]);
    const { id } = await sandboxes.get(c.get("principal").tenant, c.req.param("id"));
    const page = await sandboxes.execs.list({ sandboxId: id, ...pageOf(query) });
    return c.json({ execs: page.execs.map(execView), next_cursor: page.nextCursor });
  });

  app.post("/:id/execs", (c) => startExec(c, options));
  return app;
}

function pageOf(query: Query) {
  const { cursor } = query;
  return {
    limit: readNumber(query, "limit", { min: 1, max: LIST_LIMIT_MAX, default: LIST_LIMIT_DEFAULT }),
    ...(cursor === undefined ? {} : { cursor }),
  };
}

function isOpenWanted({ status }: Query): boolean {
  if (status === undefined || status === "open") return true;
  if (status === "any") return false;
  throw invalid("status", `Cannot use status "${status.slice(0, 64)}": open or any`);
}

/** Starts a program; answers with its events, its result, or where to ask for them. */
async function startExec(c: Context<AppEnv, "/:id/execs">, options: SandboxRoutesOptions) {
  const { execs } = options.sandboxes;
  const query = readQuery(c, ["wait_seconds"]);
  const { tenant, ceilings: own } = c.get("principal");
  const request = execRequest(await readJson(c, options.bodies));
  const isInteractive = request.terminal !== undefined || request.isInputOpen === true;
  // Whoever is to send input cannot wait for the end first.
  const waitMs = readWait(query, isInteractive ? 0 : undefined);
  const ceilings = own ?? options.ceilings;
  const started = await execs.start(tenant, c.req.param("id"), { request, ceilings });
  const location = { Location: `/v1/execs/${started.id}` };
  if (wantsEvents(c.req.header("accept"))) {
    return await execEvents(c, { exec: started, fromSeq: 1, headers: location, execs, options });
  }
  const exec = await patiently(c, waitMs, (bounds) => execs.wait(tenant, started.id, bounds));
  if (exec.status === "running") return c.json(execView(exec), 202, location);
  return await textResponse(execs.result(exec), {
    status: 200,
    headers: { "Content-Type": "application/json", ...location },
    onBroken: (error) => options.onBroken(c, error),
  });
}
