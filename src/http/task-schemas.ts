/** Shapes of the bodies of tasks and tokens; what a value may be is the control plane's business. */

import { z } from "zod";
import type { SubmitOptions, WorkerTokenRequest } from "../control-plane/contract.ts";
import { invalid } from "../core/errors.ts";
import type { Json } from "../core/task.ts";
import { parse, refuseDroppedNames } from "./schemas.ts";

const text = z.string();
const texts = z.record(z.string(), z.string());

/** Names of runners that can be asked for. */
export const TASK_RUNNERS = ["shell", "agent"] as const;
/** One of {@link TASK_RUNNERS}. */
export type TaskRunnerName = (typeof TASK_RUNNERS)[number];

/** The body of `POST /v1/tasks`. */
export const taskBody = z
  .strictObject({
    runner: z
      .enum(TASK_RUNNERS)
      .optional()
      .meta({ description: "Who does it; agent only where it is on.", default: "shell" }),
    input: z.unknown().meta({
      description:
        "Of shell: {commands: [...], collect?: [glob]}. Of agent: a prompt, or {prompt, budget?}.",
    }),
    labels: texts.optional().describe("What a worker must have."),
    env: texts
      .optional()
      .describe("Variables of its programs: sealed while it waits, erased when it is claimed."),
    repo_url: text.optional().meta({
      description: "https or ssh: cloned before it starts.",
      examples: ["git@example.org:project.git"],
    }),
    ref: text.optional().meta({ description: "Of repo_url.", examples: ["main"] }),
  })
  .meta({
    description: "What a worker is to do.",
    examples: [{ input: { commands: ["uname -a"] } }],
  });

/** The body of `POST /v1/worker-tokens`. */
export const workerTokenBody = z
  .strictObject({
    worker_id: text.optional().meta({
      description: "Which worker may come with it: an id, or a pattern that ends with *.",
      default: "*",
      examples: ["build-1", "ci-*"],
    }),
    labels: texts.optional().describe("These win over what a worker says of itself."),
    tenants: z
      .array(text)
      .nullable()
      .optional()
      .describe("Whom its workers work for; null or nothing: every tenant."),
    expires_in_seconds: z.number().meta({ minimum: 1 }),
    name: text.optional().describe("For people."),
  })
  .meta({
    description: "The token to make.",
    examples: [{ expires_in_seconds: 3600 }, { worker_id: "ci-*", expires_in_seconds: 86_400 }],
  });

/** A task that is asked for. */
export interface TaskRequest {
  readonly runner: TaskRunnerName;
  readonly input: Json;
  readonly options: SubmitOptions;
}

/**
 * The request in a body of `POST /v1/tasks`.
 *
 * @throws CprgError `invalid_argument` naming the field that has the wrong type or is unknown
 */
export function taskRequest(body: unknown): TaskRequest {
  const { runner = "shell", input, labels, env, repo_url: repoUrl, ref } = parse(taskBody, body);
  refuseDroppedNames(body);
  if (input === undefined) throw invalid("input", "Cannot take a task without input");
  return {
    runner,
    input: input as Json,
    options: {
      ...(labels === undefined ? {} : { labels }),
      ...(env === undefined ? {} : { env }),
      ...(repoUrl === undefined ? {} : { repoUrl }),
      ...(ref === undefined ? {} : { ref }),
    },
  };
}

/** The request in a body of `POST /v1/worker-tokens`. @throws CprgError as {@link taskRequest} */
export function workerTokenRequest(body: unknown): WorkerTokenRequest {
  const {
    worker_id: workerId,
    expires_in_seconds: expiresInSeconds,
    ...rest
  } = parse(workerTokenBody, body);
  refuseDroppedNames(body);
  const { labels, tenants, name } = rest;
  return {
    expiresInSeconds,
    ...(workerId === undefined ? {} : { workerId }),
    ...(labels === undefined ? {} : { labels }),
    ...(tenants === undefined ? {} : { tenants }),
    ...(name === undefined ? {} : { name }),
  };
}
