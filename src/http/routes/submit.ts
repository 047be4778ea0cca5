/** `POST /v1/jobs` and `POST /v1/jobs/batch`: one job or many, once for each idempotency key. */

import { type Context, Hono } from "hono";
import { CprgError, invalid } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import type { JobService } from "../../jobs/service.ts";
import { type JobRequest, jobSpec } from "../../jobs/spec.ts";
import { type JobView, jobView } from "../../jobs/views.ts";
import { type BodyRules, readJson } from "../body.ts";
import type { Act, AppEnv } from "../env.ts";
import { type Problem, problemOf, problemStatus } from "../problem.ts";
import { readQuery } from "../query.ts";
import {
  batchEntryRequest,
  batchRequest,
  IDEMPOTENCY_KEY_CHARS_MAX,
  jobRequest,
} from "../schemas.ts";

/** What the routes work with. */
export interface SubmitRoutesOptions {
  readonly jobs: JobService;
  /** The server's ceilings, for keys without their own. */
  readonly ceilings: Limits;
  readonly bodies: BodyRules;
  /** A job of a batch that failed for a reason which its client is not told. */
  onFailed(c: Context<AppEnv>, error: unknown): void;
}

/** The routes that take jobs. */
export function submitRoutes(options: SubmitRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const key = c.req.header("idempotency-key");
    const body = await readJson(c, options.bodies);
    const { view, isEarlier } = await submit(c, options, { request: jobRequest(body), body, key });
    c.header("Location", `/v1/jobs/${view.job_id}`);
    if (isEarlier) c.header("Idempotent-Replayed", "true");
    return c.json(view, 201);
  });

  app.post("/batch", async (c) => {
    readQuery(c, []);
    if (c.req.header("idempotency-key") !== undefined) {
      throw invalid(
        "Idempotency-Key",
        "Cannot use header Idempotency-Key with a batch: each job has its own",
        "Send jobs[].idempotency_key",
      );
    }
    const entries = batchRequest(await readJson(c, options.bodies));
    // At once, so that they share commits; each succeeds or fails alone.
    const jobs = await Promise.all(entries.map((entry) => submitEntry(c, options, entry)));
    c.set("acts", jobs.map(actOf));
    return c.json({ jobs });
  });
  return app;
}

async function submitEntry(
  c: Context<AppEnv>,
  options: SubmitRoutesOptions,
  entry: unknown,
): Promise<JobView | Problem> {
  try {
    const { request, key } = batchEntryRequest(entry);
    return (await submit(c, options, { request, body: entry, key })).view;
  } catch (thrown) {
    const error = CprgError.from(thrown, "submit job");
    if (problemStatus(error) === 500) options.onFailed(c, thrown);
    return problemOf(c, error);
  }
}

function actOf(entry: JobView | Problem): Act {
  return "job_id" in entry
    ? { object: entry.job_id, status: 201 }
    : { object: null, status: entry.status };
}

interface Submission {
  readonly request: JobRequest;
  /** What was sent: it tells two requests of one key apart. */
  readonly body: unknown;
  readonly key: string | undefined;
}

async function submit(
  c: Context<AppEnv>,
  { jobs, ...options }: SubmitRoutesOptions,
  { request, body, key }: Submission,
): Promise<{ view: JobView; isEarlier: boolean }> {
  const { tenant, ceilings } = c.get("principal");
  const spec = jobSpec(request, { ...options.ceilings, ...ceilings });
  const signal = c.get("signal");
  if (key === undefined) {
    return { view: jobView(await jobs.submit(tenant, spec, { signal })), isEarlier: false };
  }
  checkKey(key);
  const bodyHash = new Bun.CryptoHasher("sha256").update(JSON.stringify(body)).digest("hex");
  const { job, isEarlier } = await jobs.submitOnce(tenant, spec, { key, bodyHash, signal });
  return { view: isEarlier ? jobs.view(job) : jobView(job), isEarlier };
}

/** Visible ASCII, as a header can carry it. */
function checkKey(key: string): void {
  if (/^[\x21-\x7e]+$/.test(key) && key.length <= IDEMPOTENCY_KEY_CHARS_MAX) return;
  throw invalid(
    "Idempotency-Key",
    "Cannot use Idempotency-Key: not a key",
    `1 to ${IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters, without spaces`,
  );
}
