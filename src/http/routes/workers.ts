/** `/v1/workers`: list; for administrators: release, drain, remove. */

import { Hono } from "hono";
import type { TaskControl } from "../../control-plane/contract.ts";
import type { AppEnv } from "../env.ts";
import { patiently } from "../patiently.ts";
import { readQuery } from "../query.ts";
import { workerAnswerView } from "../task-views.ts";

/** The routes beneath `/v1/workers`. */
export function workerRoutes(control: TaskControl): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.get("/", (c) => {
    readQuery(c, []);
    const { role, tenant } = c.get("principal");
    const isFull = role === "admin";
    const seen = control
      .workers()
      .filter(({ tenants }) => isFull || tenants === null || tenants.includes(tenant));
    const workers = seen.map((worker) => workerAnswerView(worker, { isFull }));
    return c.json({ workers, next_cursor: null });
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    await patiently(c, 0, () => control.removeWorker(c.req.param("id")));
    return c.body(null, 204);
  });

  app.post("/:id/release", async (c) => {
    readQuery(c, []);
    const worker = await patiently(c, 0, () => control.releaseWorker(c.req.param("id")));
    return c.json(workerAnswerView(worker, { isFull: true }));
  });

  app.post("/:id/drain", async (c) => {
    readQuery(c, []);
    const worker = await patiently(c, 0, () => control.drainWorker(c.req.param("id")));
    return c.json(workerAnswerView(worker, { isFull: true }));
  });
  return app;
}
