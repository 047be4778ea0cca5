/** `GET /v1/metrics`: counts of this server, for whoever runs it. */

import { Hono } from "hono";
import type { TaskControl, WorkerStatus } from "../../control-plane/contract.ts";
import type { JobService } from "../../jobs/service.ts";
import type { AppEnv } from "../env.ts";
import { type Metric, PROMETHEUS_TYPE, prometheusText, single } from "../prometheus.ts";
import { readQuery } from "../query.ts";
import type { RequestCounts } from "../request-counts.ts";

/** Counts that only who opened the parts can read; all optional in tests. */
export interface ServerCounts {
  /** Sandboxes that are open, and built ones that wait. */
  sandboxes?(): { readonly open: number; readonly pooled: number };
  store?(): Promise<{ readonly commits: number; readonly eventRows: number }>;
  /** WebSockets that are open. */
  streams?(): number;
  /** Tasks, where there is a control plane. */
  tasks?(): TaskCounts;
}

/** Tasks of a control plane now, and what it refused. */
export interface TaskCounts {
  readonly queued: number;
  /** Claimed or running. */
  readonly running: number;
  /** What spoke of an old claim, of another's, or of a task that had ended. */
  readonly staleRefused: number;
}

const WORKER_STATES: readonly WorkerStatus[] = [
  "idle",
  "busy",
  "draining",
  "quarantined",
  "reattaching",
  "lost",
];

/** What the route works with. */
export interface MetricsRoutesOptions {
  readonly jobs: JobService;
  readonly requests: RequestCounts;
  readonly counts: ServerCounts;
  readonly control: TaskControl | undefined;
}

/** The metrics. */
export function metricsRoutes(options: MetricsRoutesOptions): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.get("/", async (c) => {
    readQuery(c, []);
    const { control } = options;
    const text = prometheusText([
      ...(await jobMetrics(options)),
      ...(control === undefined ? [] : workerMetrics(control)),
      ...(options.counts.tasks === undefined ? [] : taskMetrics(options.counts.tasks())),
      ...(await hostMetrics(options)),
    ]);
    return c.text(text, 200, { "Content-Type": PROMETHEUS_TYPE });
  });
  return app;
}

async function jobMetrics({ jobs, requests }: MetricsRoutesOptions): Promise<Metric[]> {
  const [byStatus, counts] = await Promise.all([jobs.statusCounts(), jobs.counts()]);
  return [
    {
      name: "cprg_jobs_total",
      help: "Jobs in the store, by status.",
      type: "gauge",
      samples: Object.entries(byStatus).map(([status, value]) => ({ labels: { status }, value })),
    },
    gauge("cprg_running_jobs", "Jobs that run here.", counts.running),
    gauge("cprg_queued_jobs", "Jobs that wait.", counts.queued),
    gauge("cprg_job_slots", "Jobs that can run at once.", counts.slots),
    {
      name: "cprg_http_requests_total",
      help: "Requests that were answered, by route and status.",
      type: "counter",
      samples: requests.all().map(({ method, route, status, count }) => ({
        labels: { method, route, code: String(status) },
        value: count,
      })),
    },
  ];
}

function workerMetrics(control: TaskControl): Metric[] {
  const workers = control.workers();
  const count = (state: WorkerStatus) => workers.filter(({ status }) => status === state).length;
  return [
    {
      name: "cprg_workers",
      help: "Workers that are connected or waited for, by state.",
      type: "gauge",
      samples: WORKER_STATES.map((state) => ({ labels: { state }, value: count(state) })),
    },
    gauge(
      "cprg_worker_claims",
      "Claims of workers.",
      workers.reduce((sum, { claims }) => sum + claims.length, 0),
    ),
    gauge(
      "cprg_worker_slots",
      "Claims that the connected workers can have at once.",
      workers.reduce((sum, { slots }) => sum + slots, 0),
    ),
  ];
}

function taskMetrics({ queued, running, staleRefused }: TaskCounts): Metric[] {
  return [
    gauge("cprg_queued_tasks", "Tasks that wait for a worker.", queued),
    gauge("cprg_running_tasks", "Tasks that are claimed or run.", running),
    counter(
      "cprg_stale_epoch_refused_total",
      "What spoke of an old claim, of another's, or of a task that had ended, and was refused.",
      staleRefused,
    ),
  ];
}

async function hostMetrics({ jobs, counts }: MetricsRoutesOptions): Promise<Metric[]> {
  const sandboxes = counts.sandboxes?.() ?? { open: 0, pooled: 0 };
  const store = (await counts.store?.()) ?? { commits: 0, eventRows: 0 };
  return [
    gauge("cprg_sandboxes", "Sandboxes that are open.", sandboxes.open),
    gauge("cprg_pooled_sandboxes", "Sandboxes that are built and wait.", sandboxes.pooled),
    counter("cprg_event_rows_total", "Rows of logs that this process stored.", store.eventRows),
    counter("cprg_store_commits_total", "Commits that this process made.", store.commits),
    gauge("cprg_artifact_bytes", "Bytes of kept artifacts.", jobs.artifactBytes),
    gauge("cprg_open_streams", "WebSockets that are open.", counts.streams?.() ?? 0),
    gauge("process_resident_memory_bytes", "Resident memory.", process.memoryUsage.rss()),
  ];
}

function gauge(name: string, help: string, value: number): Metric {
  return single(name, { type: "gauge", help, value });
}

function counter(name: string, help: string, value: number): Metric {
  return single(name, { type: "counter", help, value });
}
