/** `GET /v1/languages`: what programs can be written in here. */

import { Hono } from "hono";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { readQuery } from "../query.ts";

/** The list of languages. */
export function languageRoutes(jobs: JobService): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/", async (c) => {
    readQuery(c, []);
    const languages = (await jobs.languages()).map(({ name, version, executable }) => ({
      name,
      version,
      executable,
    }));
    return c.json({ languages, next_cursor: null });
  });
  return app;
}
