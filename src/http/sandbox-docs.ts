/** Routes of sandboxes and of the execs in them, described. */

import {
  eofParameters,
  execListParameters,
  followParameters,
  getFileParameters,
  putFileParameters,
  replayParameters,
  resultParameters,
  sandboxListParameters,
  startParameters,
} from "./parameters.ts";
import { type AnswerDoc, BYTES, json, type RouteDoc, TAR } from "./route-doc.ts";
import { exec, execList, execReplay, execResult, sandbox, sandboxList } from "./sandbox-answers.ts";
import { execBody, sandboxBody, signalBody, sizeBody } from "./sandbox-schemas.ts";

const done = (description: string): AnswerDoc => ({ description });

const ofSandbox = { tag: "sandboxes", access: "key" } as const;
const ofExec = { tag: "execs", access: "key" } as const;
const ofFile = { ...ofSandbox, path: "/v1/sandboxes/{id}/files/{path}" } as const;

/** Every route beneath `/v1/sandboxes`. */
export const SANDBOX_ROUTES: readonly RouteDoc[] = [
  {
    ...ofSandbox,
    method: "POST",
    path: "/v1/sandboxes",
    summary: "Open a sandbox",
    body: sandboxBody,
    answers: { 201: json("It is open.", sandbox) },
  },
  {
    ...ofSandbox,
    method: "GET",
    path: "/v1/sandboxes",
    summary: "List sandboxes, newest first",
    parameters: sandboxListParameters,
    answers: { 200: json("A page.", sandboxList) },
  },
  {
    ...ofSandbox,
    method: "GET",
    path: "/v1/sandboxes/{id}",
    summary: "Look at a sandbox",
    answers: { 200: json("The sandbox.", sandbox) },
  },
  {
    ...ofSandbox,
    method: "DELETE",
    path: "/v1/sandboxes/{id}",
    summary: "End a sandbox, with all that runs in it",
    answers: { 200: json("It has ended.", sandbox) },
    problems: [409],
  },
  {
    ...ofSandbox,
    method: "POST",
    path: "/v1/sandboxes/{id}/execs",
    summary: "Run a program in a sandbox",
    description:
      "Location says where the exec is. Accept: text/event-stream follows it from its start.",
    parameters: startParameters,
    body: execBody,
    answers: {
      200: {
        description: "It has ended; or its events, as at …/events.",
        content: { "application/json": execResult, "text/event-stream": null },
      },
      202: json("It runs still.", exec),
    },
    problems: [409],
  },
  {
    ...ofSandbox,
    method: "GET",
    path: "/v1/sandboxes/{id}/execs",
    summary: "List what ran in a sandbox, newest first",
    parameters: execListParameters,
    answers: { 200: json("A page.", execList) },
  },
  {
    ...ofFile,
    method: "GET",
    summary: "Take a file, or a tree as tar",
    description:
      "The path is relative to /workspace, which is the empty path itself; one that begins with " +
      "%2F is absolute. Accept: application/x-tar asks for a tar too.",
    parameters: getFileParameters,
    answers: {
      200: { description: "Its bytes, or a tar of it.", content: { [BYTES]: null, [TAR]: null } },
    },
    problems: [409],
  },
  {
    ...ofFile,
    method: "PUT",
    summary: "Put a file, or a tree as tar",
    description:
      "What is there is replaced as a whole. A body of any other type is a file's bytes.",
    parameters: putFileParameters,
    headers: { "Content-Length": "Needed for a file; not for a tar." },
    bytes: [BYTES, TAR],
    answers: { 204: done("It is there.") },
    problems: [409, 411],
  },
  {
    ...ofFile,
    method: "DELETE",
    summary: "Remove a file or tree",
    answers: { 204: done("Nothing is there.") },
    problems: [409],
  },
];

/** Every route beneath `/v1/execs`. */
export const EXEC_ROUTES: readonly RouteDoc[] = [
  {
    ...ofExec,
    method: "GET",
    path: "/v1/execs/{id}",
    summary: "Look at an exec",
    answers: { 200: json("The exec.", exec) },
  },
  {
    ...ofExec,
    method: "DELETE",
    path: "/v1/execs/{id}",
    summary: "Cancel an exec",
    answers: {
      200: json("It has ended.", exec),
      202: json("It is being ended, and takes longer.", exec),
    },
    problems: [409],
  },
  {
    ...ofExec,
    method: "GET",
    path: "/v1/execs/{id}/result",
    summary: "Wait for an exec's end, and read its output",
    parameters: resultParameters,
    answers: {
      200: json("It has ended.", execResult),
      202: json("It has not; this is its output so far.", execResult),
    },
  },
  {
    ...ofExec,
    method: "GET",
    path: "/v1/execs/{id}/replay",
    summary: "Read an exec's log",
    parameters: replayParameters,
    answers: {
      200: {
        description: "Its events up to now; as NDJSON the whole log with its seal.",
        content: { "application/json": execReplay, "application/x-ndjson": null },
      },
    },
  },
  {
    ...ofExec,
    method: "GET",
    path: "/v1/execs/{id}/events",
    summary: "Follow an exec's log by server-sent events",
    description:
      "Begins with the event `exec`, which names it, and ends after `finished`. A comment comes " +
      "every 15 seconds.",
    parameters: followParameters,
    headers: { "Last-Event-ID": "Goes on after this seq, whatever from_seq says." },
    answers: {
      200: { description: "Its events, with seq as id.", content: { "text/event-stream": null } },
    },
  },
  {
    ...ofExec,
    method: "GET",
    path: "/v1/execs/{id}/stream",
    summary: "Follow an exec's log by WebSocket",
    description:
      "One event a message; closes with 1000 after `finished`. Browsers send their key as `?key=`.",
    parameters: followParameters,
    answers: { 101: { description: "The connection is a WebSocket." } },
    problems: [426],
  },
  {
    ...ofExec,
    method: "POST",
    path: "/v1/execs/{id}/input",
    summary: "Write to an exec's standard input or terminal",
    parameters: eofParameters,
    bytes: [BYTES],
    answers: { 202: done("It waits for the program to read."), 204: done("It was taken.") },
    problems: [408, 409, 413],
  },
  {
    ...ofExec,
    method: "POST",
    path: "/v1/execs/{id}/signal",
    summary: "Send a signal to an exec's main process",
    body: signalBody,
    answers: { 204: done("It was sent.") },
    problems: [409],
  },
  {
    ...ofExec,
    method: "POST",
    path: "/v1/execs/{id}/resize",
    summary: "Change the size of an exec's terminal",
    body: sizeBody,
    answers: { 204: done("It has this size.") },
    problems: [409],
  },
];
