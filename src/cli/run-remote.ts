/** `cprg run --server`: the same run on a server. */

import { CprgError } from "../core/errors.ts";
import { REASONS, type Reason } from "../core/reasons.ts";
import { asAnswer, asNumber, asText } from "./answers.ts";
import { requestJson, type ServerAccess } from "./client.ts";
import { jobPath, type StreamedEvent, streamEvents } from "./client-stream.ts";
import { placementField } from "./place-flag.ts";
import type { RunRequest } from "./run-request.ts";

/** Submitting carries code, input and files. */
const SUBMIT_TIMEOUT_MS = 300_000;

/** A cancel takes the job's own grace and what killing the rest needs. */
const CANCEL_TIMEOUT_MS = 120_000;

/** A job on a server. */
export interface RemoteJob {
  readonly id: string;
  /** Effective limits, as the server echoes them. */
  readonly limits: Readonly<Record<string, unknown>>;
}

/** Submits a request. */
export async function submitRemote(access: ServerAccess, request: RunRequest): Promise<RemoteJob> {
  const { body } = await requestJson(access, {
    method: "POST",
    path: "/v1/jobs",
    timeoutMs: SUBMIT_TIMEOUT_MS,
    body: {
      language: request.language,
      code: request.code,
      args: request.args,
      ...(request.stdin === null
        ? {}
        : { stdin_base64: Buffer.from(request.stdin).toString("base64") }),
      files: request.files,
      env: request.env,
      limits: request.limits,
      ...placementField(request.place),
    },
  });
  const id = asText(asAnswer(body)["job_id"]);
  if (id === "") throw new CprgError("data_loss", "Cannot follow the job: the answer names none");
  return { id, limits: asAnswer(asAnswer(body)["limits"]) };
}

/** Asks the server to end a job; one that has ended meanwhile is as well. */
export async function cancelRemote(access: ServerAccess, id: string): Promise<void> {
  try {
    await requestJson(access, {
      method: "DELETE",
      path: jobPath(id),
      timeoutMs: CANCEL_TIMEOUT_MS,
    });
  } catch (error) {
    if (!CprgError.is(error) || error.code !== "aborted") throw error;
  }
}

/** How a job or exec on a server ended. */
export interface RemoteEnd {
  readonly reason: Reason;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: { readonly message: string; readonly hint?: string } | null;
}

/**
 * Follows a job or exec to its end.
 *
 * @param show sees each event
 * @returns null when the signal ended the following first
 */
export async function followRemote(
  access: ServerAccess,
  options: {
    /** Of the job or exec. */
    readonly path: string;
    readonly signal: AbortSignal;
    show(event: StreamedEvent): Promise<void>;
  },
): Promise<RemoteEnd | null> {
  const request = { path: options.path, fromSeq: 1, signal: options.signal };
  for await (const event of streamEvents(access, request)) {
    await options.show(event);
    if (event.kind === "finished") return toEnd(event);
  }
  return null;
}

function toEnd(event: StreamedEvent): RemoteEnd {
  const data = asAnswer(event.data);
  const reason = REASONS.find((known) => known === data["reason"]);
  if (reason === undefined) {
    throw new CprgError("data_loss", "Cannot read the end of the run: its reason is unknown");
  }
  const error = asAnswer(data["error"]);
  const hint = asText(error["hint"]);
  return {
    reason,
    exitCode: asNumber(data["exit_code"]),
    signal: asText(data["signal"]) || null,
    error:
      typeof error["message"] === "string"
        ? { message: error["message"], ...(hint === "" ? {} : { hint }) }
        : null,
  };
}
