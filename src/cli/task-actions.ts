/** What `cprg tasks` does, action by action. Each returns the exit code. */

import { TASK_STATUSES, type TaskStatus } from "../core/task.ts";
import { type Answer, asAnswer, asAnswers, asText } from "./answers.ts";
import { requestJson, type ServerAccess } from "./client.ts";
import { taskEvents } from "./client-events.ts";
import type { StreamedEvent } from "./client-stream.ts";
import { EXIT } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import {
  type Cell,
  type Colour,
  formatDuration,
  jsonText,
  paintFor,
  printable,
  table,
} from "./output.ts";
import { parseInteger } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

const TASKS_MAX = 10_000;
const PAGE_MAX = 100;
/** How long one request for the end of a task waits; then it is made again. */
const WAIT_SECONDS = 60;
/** The server's answer comes a little after its own wait. */
const WAIT_TIMEOUT_MS = (WAIT_SECONDS + 30) * 1000;

const COLOURS: Readonly<Record<TaskStatus, Colour>> = {
  queued: "dim",
  claiming: "yellow",
  running: "yellow",
  succeeded: "green",
  failed: "red",
  cancelled: "yellow",
};

/** Who asks, and how answers are shown. */
export interface Asked {
  readonly access: ServerAccess;
  readonly json: boolean;
  readonly terminal: Terminal;
}

/** Lists tasks, newest first. */
export async function listTasks(
  flags: { readonly status: string | undefined; readonly limit: string | undefined },
  { access, json, terminal }: Asked,
): Promise<number> {
  const count = parseInteger({ least: 1, most: TASKS_MAX })(flags.limit ?? "20", "--limit");
  const { status } = flags;
  if (status !== undefined && !isStatus(status)) {
    throw usageError(`Cannot use --status "${status}": expected ${TASK_STATUSES.join(", ")}`);
  }
  const found: Answer[] = [];
  let cursor = "";
  while (found.length < count) {
    const search = new URLSearchParams({
      limit: String(Math.min(PAGE_MAX, count - found.length)),
      ...(status === undefined ? {} : { status }),
      ...(cursor === "" ? {} : { cursor }),
    });
    const page = asAnswer((await requestJson(access, { path: `/v1/tasks?${search}` })).body);
    const ofPage = asAnswers(page["tasks"]);
    found.push(...ofPage);
    cursor = asText(page["next_cursor"]);
    if (cursor === "" || ofPage.length === 0) break;
  }
  if (json) await terminal.stdout.write(jsonText({ tasks: found }));
  else {
    const header = ["TASK", "STATUS", "RUNNER", "WORKER", "CREATED", "WHY"];
    const paint = paintFor(terminal.stdout, terminal.env);
    await terminal.stdout.write(table(header, found.map(taskRow), paint));
  }
  return EXIT.ok;
}

/** Submits; prints the id, or with `isFollowed` the log to its end. */
export async function submitTask(
  body: Answer,
  asked: Asked & { readonly isFollowed: boolean },
): Promise<number> {
  const { access, json, terminal, isFollowed } = asked;
  const request = { method: "POST", path: "/v1/tasks", body } as const;
  const task = asAnswer((await requestJson(access, request)).body);
  const id = asText(task["task_id"]);
  const why = asText(asAnswer(task["waiting"])["detail"]);
  if (!isFollowed) {
    await terminal.stdout.write(json ? jsonText(task) : `${id}\n`);
    if (!json && why !== "") await terminal.stderr.write(`waits: ${printable(why)}\n`);
    return EXIT.ok;
  }
  await terminal.stderr.write(`task ${id}${why === "" ? "" : `; waits: ${printable(why)}`}\n`);
  await followTask(id, { ...asked, json: false });
  return await waitForTask(id, asked);
}

/** Shows one. */
export async function showTask(id: string, { access, json, terminal }: Asked): Promise<number> {
  const task = asAnswer((await requestJson(access, { path: pathOf(id) })).body);
  await terminal.stdout.write(json ? jsonText(task) : factsOf(task));
  return EXIT.ok;
}

/** Waits for the end and shows it; 1 when the task did not succeed. */
export async function waitForTask(id: string, { access, json, terminal }: Asked): Promise<number> {
  for (;;) {
    const path = `${pathOf(id)}?wait_seconds=${WAIT_SECONDS}`;
    const task = asAnswer((await requestJson(access, { path, timeoutMs: WAIT_TIMEOUT_MS })).body);
    if (asText(task["finished_at"]) === "") continue;
    await terminal.stdout.write(json ? jsonText(task) : factsOf(task));
    return task["status"] === "succeeded" ? EXIT.ok : EXIT.failed;
  }
}

/** Prints the log to its end: notes on standard output, what becomes of the task on the other. */
export async function followTask(id: string, { access, json, terminal }: Asked): Promise<number> {
  for await (const event of taskEvents(access, pathOf(id))) {
    if (json) await terminal.stdout.write(`${JSON.stringify(event)}\n`);
    else await printEvent(event, terminal);
  }
  return EXIT.ok;
}

/** Cancels one. */
export async function cancelTask(id: string, { access, json, terminal }: Asked): Promise<number> {
  const { status, body } = await requestJson(access, { method: "DELETE", path: pathOf(id) });
  if (json) await terminal.stdout.write(jsonText(body));
  else await terminal.stderr.write(status === 202 ? `${id} will end\n` : `cancelled ${id}\n`);
  return EXIT.ok;
}

async function printEvent({ kind, data }: StreamedEvent, terminal: Terminal): Promise<void> {
  if (kind === "stdout" || kind === "stderr") {
    const lines = asText(data).replace(/\n$/, "").split("\n").map(printable);
    await terminal.stdout.write(`${lines.join("\n")}\n`);
    return;
  }
  const { status, worker_id: worker, error } = asAnswer(data);
  const on = asText(worker) === "" ? "" : ` on ${printable(asText(worker))}`;
  const why = errorText(error);
  await terminal.stderr.write(`${asText(status, kind)}${on}${why === "" ? "" : `: ${why}`}\n`);
}

function errorText(error: unknown): string {
  return printable(typeof error === "string" ? error : asText(asAnswer(error)["message"]));
}

function pathOf(id: string): string {
  return `/v1/tasks/${encodeURIComponent(id)}`;
}

function isStatus(text: string): text is TaskStatus {
  return (TASK_STATUSES as readonly string[]).includes(text);
}

function taskRow(task: Answer): Cell[] {
  const status = asText(task["status"], "?");
  return [
    asText(task["task_id"], "?"),
    isStatus(status) ? { text: status, colour: COLOURS[status] } : status,
    asText(task["runner"]),
    asText(task["worker_id"]),
    asText(task["created_at"]),
    whyOf(task),
  ];
}

/** Why it waits, or how it ended. */
function whyOf(task: Answer): string {
  const waiting = asText(asAnswer(task["waiting"])["detail"]);
  return waiting || asText(task["error"]) || asText(task["reason"]);
}

function factsOf(task: Answer): string {
  const started = Date.parse(asText(task["started_at"]));
  const took = Date.parse(asText(task["finished_at"])) - started;
  const facts: readonly (readonly [string, string])[] = [
    ["task", asText(task["task_id"])],
    ["status", asText(task["status"])],
    ["reason", asText(task["reason"])],
    ["waits", asText(asAnswer(task["waiting"])["detail"])],
    ["runner", asText(task["runner"])],
    ["worker", asText(task["worker_id"])],
    ["took", Number.isFinite(took) ? formatDuration(took) : ""],
    ["error", asText(task["error"])],
  ];
  const lines = facts
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `${name.padEnd(8)} ${printable(value)}\n`);
  const { result } = task;
  const shown = result === null || result === undefined ? "" : `result   ${resultText(result)}\n`;
  return lines.join("") + shown;
}

/** JSON escapes what could drive a terminal, but for what C1 and bidirectional characters do. */
function resultText(result: unknown): string {
  return JSON.stringify(result, null, 2).split("\n").map(printable).join("\n");
}
