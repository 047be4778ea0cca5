/** Routes of jobs, described. */

import { batch, fileList, job, jobList, replay, result } from "./answers.ts";
import {
  followParameters,
  listParameters,
  replayParameters,
  resultParameters,
} from "./parameters.ts";
import { json, type RouteDoc } from "./route-doc.ts";
import { batchBody, jobBody } from "./schemas.ts";

const common = { tag: "jobs", access: "key" } as const;

/** Every route beneath `/v1/jobs`. */
export const JOB_ROUTES: readonly RouteDoc[] = [
  {
    ...common,
    method: "POST",
    path: "/v1/jobs",
    summary: "Queue a job",
    headers: {
      "Idempotency-Key":
        "Requests of a tenant with the same key and body make one job within 24 hours.",
    },
    body: jobBody,
    answers: { 201: json("The job; where an earlier request made it, as it is now.", job) },
    problems: [422, 503, 507],
  },
  {
    ...common,
    method: "POST",
    path: "/v1/jobs/batch",
    summary: "Queue many jobs",
    body: batchBody,
    answers: { 200: json("A job or a problem each.", batch) },
    problems: [503],
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs",
    summary: "List jobs, newest first",
    parameters: listParameters,
    answers: { 200: json("A page.", jobList) },
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}",
    summary: "Look at a job",
    answers: { 200: json("The job.", job) },
  },
  {
    ...common,
    method: "DELETE",
    path: "/v1/jobs/{id}",
    summary: "Cancel a job",
    answers: {
      200: json("It has ended.", job),
      202: json("It is being ended, and takes longer.", job),
    },
    problems: [409],
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/result",
    summary: "Wait for a job's end, and read its output",
    parameters: resultParameters,
    answers: {
      200: json("It has ended.", result),
      202: json("It has not; this is its output so far.", result),
    },
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/replay",
    summary: "Read a job's log",
    parameters: replayParameters,
    answers: {
      200: {
        description: "Its events up to now; as NDJSON the whole log with its seal.",
        content: { "application/json": replay, "application/x-ndjson": null },
      },
    },
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/events",
    summary: "Follow a job's log by server-sent events",
    description: "Ends after the event `finished`. A comment comes every 15 seconds.",
    parameters: followParameters,
    headers: { "Last-Event-ID": "Goes on after this seq, whatever from_seq says." },
    answers: {
      200: { description: "Its events, with seq as id.", content: { "text/event-stream": null } },
    },
    problems: [503],
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/stream",
    summary: "Follow a job's log by WebSocket",
    description:
      "One event a message; closes with 1000 after `finished`. Browsers send their key as `?key=`.",
    parameters: followParameters,
    answers: { 101: { description: "The connection is a WebSocket." } },
    problems: [426, 503],
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/files",
    summary: "List the files that a job left in /workspace/out",
    answers: { 200: json("What is kept.", fileList) },
  },
  {
    ...common,
    method: "GET",
    path: "/v1/jobs/{id}/files/{path}",
    summary: "Read one of them",
    answers: {
      200: { description: "Its bytes.", content: { "application/octet-stream": null } },
    },
  },
];
