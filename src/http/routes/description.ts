/** `/openapi.json` and `/docs`: what can be asked, for programs and for people. No key is needed. */

import { Hono } from "hono";
import { DOCS_POLICY, docsPage } from "../docs-page.ts";
import type { AppEnv } from "../env.ts";
import { openApi } from "../openapi.ts";
import type { RouteDoc } from "../route-doc.ts";

/** The description of an app's routes; made once. */
export function descriptionRoutes(routes: readonly RouteDoc[], version: string): Hono<AppEnv> {
  const document = openApi(routes, { version });
  const page = docsPage(document, version);
  const app = new Hono<AppEnv>();
  app.get("/openapi.json", (c) => c.json(document));
  app.get("/docs", (c) => c.html(page, 200, { "Content-Security-Policy": DOCS_POLICY }));
  return app;
}
