/**
 * `GET /v1/jobs/{id}/files` and `…/files/{path}`: what a program left in /workspace/out. A program
 * wrote the bytes and chose the names, so a browser is told to save them, and to run nothing.
 */

import { Hono } from "hono";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { filePath } from "../file-path.ts";
import { readQuery } from "../query.ts";
import type { StreamedAnswers } from "../streamed.ts";

const FILE_HEADERS = {
  "Content-Type": "application/octet-stream",
  "Content-Security-Policy": "default-src 'none'; sandbox",
  "Cross-Origin-Resource-Policy": "same-origin",
};

/** What the routes work with. */
export interface JobFileRoutesOptions {
  readonly jobs: JobService;
  readonly streamed: StreamedAnswers;
}

/** The files beneath `/v1/jobs`. */
export function jobFileRoutes({ jobs, streamed }: JobFileRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.get("/:id/files", async (c) => {
    readQuery(c, []);
    const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
    const { files, problem } = await jobs.files(job);
    return c.json({ job_id: job.id, files, problem, next_cursor: null });
  });

  app.get("/:id/files/*", async (c) => {
    readQuery(c, []);
    const job = await jobs.get(c.get("principal").tenant, c.req.param("id"));
    const path = filePath(c);
    const { bytes } = await jobs.file(job, path);
    return await streamed.bytes(c, bytes, {
      headers: { ...FILE_HEADERS, "Content-Disposition": attachment(path) },
    });
  });
  return app;
}

/** RFC 6266 with RFC 8187: the last name of the path, in a form that no header breaks on. */
function attachment(path: string): string {
  const name = encodeURIComponent(path.slice(path.lastIndexOf("/") + 1).toWellFormed());
  const quoted = name.replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `attachment; filename*=UTF-8''${quoted}`;
}
