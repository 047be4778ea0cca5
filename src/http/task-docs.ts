/** Routes of tasks, workers and tokens for workers, described. */

import { followParameters, taskListParameters, taskParameters } from "./parameters.ts";
import { json, type RouteDoc } from "./route-doc.ts";
import {
  mintedWorkerToken,
  task,
  taskList,
  worker,
  workerList,
  workerToken,
  workerTokenList,
} from "./task-answers.ts";
import { taskBody, workerTokenBody } from "./task-schemas.ts";

const ofTask = { tag: "tasks", access: "key" } as const;
const ofWorker = { tag: "workers", access: "admin" } as const;
const ofToken = { tag: "worker tokens", access: "admin" } as const;

/** Every route beneath `/v1/tasks`, `/v1/workers` and `/v1/worker-tokens`. */
export const TASK_ROUTES: readonly RouteDoc[] = [
  {
    ...ofTask,
    method: "POST",
    path: "/v1/tasks",
    summary: "Queue a task for a worker",
    description: "waiting says at once why no worker takes it, and what would help.",
    body: taskBody,
    answers: { 201: json("It is queued.", task) },
  },
  {
    ...ofTask,
    method: "GET",
    path: "/v1/tasks",
    summary: "List tasks, newest first, without inputs and results",
    parameters: taskListParameters,
    answers: { 200: json("A page.", taskList) },
  },
  {
    ...ofTask,
    method: "GET",
    path: "/v1/tasks/{id}",
    summary: "Look at a task, or wait for its end",
    parameters: taskParameters,
    answers: { 200: json("The task.", task) },
  },
  {
    ...ofTask,
    method: "DELETE",
    path: "/v1/tasks/{id}",
    summary: "Cancel a task",
    answers: { 200: json("It has ended.", task), 202: json("It will end.", task) },
    problems: [409],
  },
  {
    ...ofTask,
    method: "GET",
    path: "/v1/tasks/{id}/events",
    summary: "Follow a task as server-sent events",
    description: "From from_seq, or after Last-Event-ID, to its end.",
    parameters: followParameters,
    headers: { "Last-Event-ID": "The seq of the last event that was seen." },
    answers: {
      200: { description: "Events.", content: { "text/event-stream": null } },
    },
  },
  {
    ...ofWorker,
    access: "key",
    method: "GET",
    path: "/v1/workers",
    summary: "List workers: all, or those that work for the key's tenant",
    answers: { 200: json("The workers.", workerList) },
  },
  {
    ...ofWorker,
    method: "DELETE",
    path: "/v1/workers/{id}",
    summary: "End a worker's stream and claims, and forget its id",
    answers: { 204: { description: "It is gone." } },
  },
  {
    ...ofWorker,
    method: "POST",
    path: "/v1/workers/{id}/release",
    summary: "End a worker's claims, fail their tasks, and let it go on",
    answers: { 200: json("The worker.", worker) },
  },
  {
    ...ofWorker,
    method: "POST",
    path: "/v1/workers/{id}/drain",
    summary: "Let a worker finish its claims and take no other",
    answers: { 200: json("The worker.", worker) },
  },
  {
    ...ofToken,
    method: "POST",
    path: "/v1/worker-tokens",
    summary: "Make a token for workers, which is shown this once",
    body: workerTokenBody,
    answers: { 201: json("It holds.", mintedWorkerToken) },
  },
  {
    ...ofToken,
    method: "GET",
    path: "/v1/worker-tokens",
    summary: "List tokens for workers, newest first, revoked ones too",
    answers: { 200: json("The tokens.", workerTokenList) },
  },
  {
    ...ofToken,
    method: "DELETE",
    path: "/v1/worker-tokens/{id}",
    summary: "Revoke a token: streams that came with it are cut",
    answers: { 200: json("It is revoked.", workerToken) },
  },
];
