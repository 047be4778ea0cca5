/** `/v1/worker-tokens`, for administrators: make, list, revoke. A token is shown when it is made. */

import { Hono } from "hono";
import type { TaskControl } from "../../control-plane/contract.ts";
import { type BodyRules, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { readQuery } from "../query.ts";
import { workerTokenRequest } from "../task-schemas.ts";
import { mintedAnswerView, tokenAnswerView } from "../task-views.ts";

/** The routes beneath `/v1/worker-tokens`. */
export function workerTokenRoutes(control: TaskControl, bodies: BodyRules): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const minted = await control.mintWorkerToken(workerTokenRequest(await readJson(c, bodies)));
    c.header("Location", `/v1/worker-tokens/${minted.view.id}`);
    return c.json(mintedAnswerView(minted), 201);
  });

  app.get("/", async (c) => {
    readQuery(c, []);
    const tokens = await control.workerTokens();
    return c.json({ worker_tokens: tokens.map(tokenAnswerView), next_cursor: null });
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    return c.json(tokenAnswerView(await control.revokeWorkerToken(c.req.param("id"))));
  });
  return app;
}
