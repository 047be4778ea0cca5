/** `/v1/sandboxes`: open, list, look, end, and run programs. Files have their own file. */

import { type Context, Hono } from "hono";
import type { Limits } from "../../core/limits.ts";
import type { SandboxService } from "../../sandboxes/service.ts";
import { sandboxSpec } from "../../sandboxes/spec.ts";
import { execView, sandboxView } from "../../sandboxes/views.ts";
import { type BodyRules, readJson } from "../body.ts";
import { listCursor, readCursor } from "../cursors.ts";
import type { AppEnv } from "../env.ts";
import { followExec } from "../follow-exec.ts";
import {
  execListParameters,
  readParameters,
  sandboxListParameters,
  startParameters,
  WAIT_SECONDS_DEFAULT,
} from "../parameters.ts";
import { patiently } from "../patiently.ts";
import { readQuery } from "../query.ts";
import { execRequest, sandboxRequest } from "../sandbox-schemas.ts";
import { wantsEvents } from "../sse.ts";
import type { StreamedAnswers } from "../streamed.ts";

/** What the routes work with. */
export interface SandboxRoutesOptions {
  readonly sandboxes: SandboxService;
  /** The server's ceilings, for keys without their own. */
  readonly ceilings: Limits;
  readonly bodies: BodyRules;
  readonly streamed: StreamedAnswers;
}

/** The routes beneath `/v1/sandboxes`, but for files. */
export function sandboxRoutes(options: SandboxRoutesOptions): Hono<AppEnv> {
  const { sandboxes } = options;
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const { tenant, ceilings } = c.get("principal");
    const request = sandboxRequest(await readJson(c, options.bodies));
    const spec = sandboxSpec(request, { ...options.ceilings, ...ceilings });
    const sandbox = await patiently(c, 0, ({ signal }) =>
      sandboxes.create(tenant, spec, { signal }),
    );
    c.header("Location", `/v1/sandboxes/${sandbox.id}`);
    return c.json(sandboxView(sandbox), 201);
  });

  app.get("/", async (c) => {
    const { status, limit, cursor } = readParameters(c, sandboxListParameters);
    const { tenant } = c.get("principal");
    const place = { limit, ...readCursor("sandboxes", cursor) };
    const page = await sandboxes.list({ tenant, ...place, isOpen: status === "open" });
    const views = page.sandboxes.map(sandboxView);
    return c.json({ sandboxes: views, next_cursor: listCursor("sandboxes", page.nextCursor) });
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
    const { limit, cursor } = readParameters(c, execListParameters);
    const { id } = await sandboxes.get(c.get("principal").tenant, c.req.param("id"));
    const place = { limit, ...readCursor("execs", cursor) };
    const page = await sandboxes.execs.list({ sandboxId: id, ...place });
    return c.json({
      execs: page.execs.map(execView),
      next_cursor: listCursor("execs", page.nextCursor),
    });
  });

  app.post("/:id/execs", (c) => startExec(c, options));
  return app;
}

/** Starts a program; answers with its events, its result, or where to ask for them. */
async function startExec(c: Context<AppEnv, "/:id/execs">, options: SandboxRoutesOptions) {
  const { sandboxes, streamed } = options;
  const { execs } = sandboxes;
  const { wait_seconds: asked } = readParameters(c, startParameters);
  const { tenant, ceilings: own } = c.get("principal");
  await sandboxes.get(tenant, c.req.param("id"));
  const request = execRequest(await readJson(c, options.bodies));
  const isInteractive = request.terminal !== undefined || request.isInputOpen === true;
  // Whoever is to send input cannot wait for the end first.
  const waitMs = (asked ?? (isInteractive ? 0 : WAIT_SECONDS_DEFAULT)) * 1000;
  const ceilings = { ...options.ceilings, ...own };
  // Taken first: what has started cannot be refused.
  const place = wantsEvents(c.req.header("accept")) ? streamed.place(c) : null;
  const start = { request, ceilings, signal: c.get("signal") };
  const started = await execs.start(tenant, c.req.param("id"), start).catch((error: unknown) => {
    place?.giveBack();
    throw error;
  });
  const headers = { Location: `/v1/execs/${started.id}` };
  if (place !== null) {
    return await followExec(c, streamed, { execs, exec: started, fromSeq: 1, headers, place });
  }
  const exec = await patiently(c, waitMs, (bounds) => execs.wait(tenant, started.id, bounds));
  if (exec.status === "running") return c.json(execView(exec), 202, headers);
  return await streamed.text(c, execs.result(exec), {
    headers: { "Content-Type": "application/json", ...headers },
  });
}
