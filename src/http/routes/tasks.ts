/** `/v1/tasks`: submit, list, look, wait, cancel, follow. A task of another tenant does not exist. */

import { type Context, Hono } from "hono";
import type { TaskControl, TaskView } from "../../control-plane/contract.ts";
import { CprgError } from "../../core/errors.ts";
import { hasTaskEnded, type Json } from "../../core/task.ts";
import { startTimer } from "../../core/timer.ts";
import type { Feed } from "../../record/feed.ts";
import { type BodyRules, readJson } from "../body.ts";
import { listCursor, readCursor } from "../cursors.ts";
import type { AppEnv } from "../env.ts";
import { followResponse, readFollow } from "../follow.ts";
import { readParameters, taskListParameters, taskParameters } from "../parameters.ts";
import { patiently } from "../patiently.ts";
import { readQuery } from "../query.ts";
import type { StreamedAnswers } from "../streamed.ts";
import { type TaskRunnerName, taskRequest } from "../task-schemas.ts";
import { taskAnswerView, taskEntryView } from "../task-views.ts";

/** The control plane, as far as the app uses it. */
export interface TaskParts {
  readonly control: TaskControl;
  /** Runners that tasks may ask for over HTTP, with what refuses an input: `invalid_argument`. */
  readonly runners: Readonly<Partial<Record<TaskRunnerName, (input: Json) => void>>>;
  /** Logs of tasks: history, then live. */
  readonly feed: Feed;
}

/** What the routes work with. */
export interface TaskRoutesOptions {
  readonly tasks: TaskParts;
  readonly cancelWaitMs: number;
  readonly bodies: BodyRules;
  readonly streamed: StreamedAnswers;
}

/** The routes beneath `/v1/tasks`. */
export function taskRoutes(options: TaskRoutesOptions): Hono<AppEnv> {
  const { control, feed } = options.tasks;
  const app = new Hono<AppEnv>();

  app.post("/", async (c) => {
    readQuery(c, []);
    const view = await submit(c, options);
    c.header("Location", `/v1/tasks/${view.id}`);
    return c.json(taskAnswerView(view), 201);
  });

  app.get("/", async (c) => {
    const { limit, cursor, status } = readParameters(c, taskListParameters);
    const { tenant } = c.get("principal");
    const place = { tenant, limit, ...readCursor("tasks", cursor) };
    const page = await control.tasks({ ...place, ...(status === undefined ? {} : { status }) });
    const views = page.tasks.map(taskEntryView);
    return c.json({ tasks: views, next_cursor: listCursor("tasks", page.nextCursor) });
  });

  app.get("/:id", async (c) => {
    const { wait_seconds: seconds } = readParameters(c, taskParameters);
    const task = await ownTask(c, control);
    if (seconds === 0 || hasTaskEnded(task)) return c.json(taskAnswerView(task));
    const ended = await patiently(c, seconds * 1000, ({ waitMs, signal }) =>
      within(waitMs, signal, (bound) => control.waitTask(task.id, { signal: bound })),
    );
    return c.json(taskAnswerView(ended ?? (await control.task(task.id, task.tenant))));
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    const { id, tenant } = await ownTask(c, control);
    const cancelled = await patiently(c, options.cancelWaitMs, ({ waitMs, signal }) =>
      within(waitMs, signal, () => control.cancelTask(id)),
    );
    const view = cancelled ?? (await control.task(id, tenant));
    return c.json(taskAnswerView(view), hasTaskEnded(view) ? 200 : 202);
  });

  app.get("/:id/events", async (c) => {
    const fromSeq = readFollow(c);
    const { id } = await ownTask(c, control);
    return await followResponse(c, options.streamed, {
      subscribe: (signal) => feed.subscribe(`task:${id}`, { fromSeq, signal }),
    });
  });
  return app;
}

async function submit(c: Context<AppEnv>, options: TaskRoutesOptions): Promise<TaskView> {
  const { control, runners } = options.tasks;
  const { tenant } = c.get("principal");
  const { runner, input, options: rest } = taskRequest(await readJson(c, options.bodies));
  const checkInput = runners[runner];
  if (checkInput === undefined) throw runnerOff(runner);
  checkInput(input);
  // What is committed is answered; what nobody waits for any more is not begun.
  c.get("signal").throwIfAborted();
  return await control.submit(input, { ...rest, tenant, runner });
}

async function ownTask(c: Context<AppEnv, "/:id">, control: TaskControl): Promise<TaskView> {
  return await control.task(c.req.param("id"), c.get("principal").tenant);
}

/** What a piece of work gives, unless the time is up first: then null, and the work goes on. */
async function within<T>(
  waitMs: number,
  signal: AbortSignal,
  start: (bound: AbortSignal) => Promise<T>,
): Promise<T | null> {
  const over = new AbortController();
  const late = Promise.withResolvers<null>();
  const gone = Promise.withResolvers<never>();
  const leave = (): void => gone.reject(signal.reason);
  const timer = startTimer(waitMs, () => late.resolve(null));
  signal.addEventListener("abort", leave, { once: true });
  if (signal.aborted) leave();
  const work = start(over.signal);
  try {
    return await Promise.race([work, late.promise, gone.promise]);
  } finally {
    timer.clear();
    signal.removeEventListener("abort", leave);
    over.abort();
    // Whoever left first does not hear of how it ended.
    work.catch(() => undefined);
  }
}

function runnerOff(runner: TaskRunnerName): CprgError {
  return new CprgError("failed_precondition", `Cannot take task: runner "${runner}" is off here`, {
    reason: "RUNNER_OFF",
    field: "runner",
    hint: "An administrator turns it on with CPRG_AGENT_MODEL",
  });
}
