/** Tasks as they are seen: frozen all the way down. */

import { CLAIM_LIMITS, JOB_RUN } from "../bridge/methods.ts";
import { frozenJson } from "../core/json-value.ts";
import type { Task } from "../core/task.ts";
import type { TaskView, WaitingFor } from "./contract.ts";
import { type Places, suits, type Waiting, whyWaiting } from "./scheduler.ts";

/** A task as it is now, with why it waits where it does. */
export function taskView(task: Task, waiting: WaitingFor | null = null): TaskView {
  const { input, result, labels } = task;
  return Object.freeze({
    ...task,
    input: frozenJson(input),
    result: frozenJson(result),
    labels: Object.freeze({ ...labels }),
    ...(waiting === null ? {} : { waiting: Object.freeze(waiting) }),
  });
}

/** Why a task waits, and what would help; null when it need not. */
export function waitingFor(task: Waiting, state: Places): WaitingFor | null {
  const code = whyWaiting(task, state);
  if (code === null) return null;
  const suited = state.workers.filter((worker) => suits(worker, task));
  if (code === "tenant_limit") {
    return { code, detail: `the tenant has all of its ${state.tenantLimit} claims` };
  }
  if (code === "all_busy") {
    const closed = suited.filter(({ isClosed }) => isClosed).length;
    const rest = closed === 0 ? "" : `; ${closed} of them take none now`;
    return { code, detail: `${counted(suited.length, "worker")} could do it, none is free${rest}` };
  }
  const labels = Object.entries(task.labels).map(([name, value]) => `${name}=${value}`);
  const able = (task.needs ?? []).map((need) => ABILITIES[need] ?? `lists ${need}`);
  const has = labels.length === 0 ? [] : [`has ${labels.join(", ")}`];
  const wanted = [...has, ...able].map((one) => ` and ${one}`).join("");
  const detail =
    state.workers.length === 0
      ? "no worker is connected"
      : `none of ${counted(state.workers.length, "worker")} works for the tenant${wanted}`;
  return { code, detail };
}

/** Capabilities, for people. */
const ABILITIES: Readonly<Record<string, string>> = {
  [JOB_RUN.name]: "runs jobs (cprg worker with a sandbox does)",
  [CLAIM_LIMITS]: "enforces limits (cprg worker with a sandbox does)",
};

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
