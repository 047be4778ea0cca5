/**
 * Shapes of request bodies, which are their description in `/openapi.json` too. Only shapes: what a
 * value may be is the business of `jobs/spec.ts`, where `cprg run` finds it as well.
 */

import { z } from "zod";
import { invalid } from "../core/errors.ts";
import { LIMIT_NAMES, type LimitName } from "../core/limits.ts";
import { ARGS_MAX, KILL_GRACE_SECONDS_MAX, LABELS_MAX } from "../core/program-rules.ts";
import { FILES_MAX } from "../jobs/file-rules.ts";
import type { JobRequest } from "../jobs/spec.ts";

// The binary forbids code made from strings, which zod would use where it can.
z.config({ jitless: true });

const text = z.string();
const texts = z.record(z.string(), z.string());

/** Jobs of one batch. */
export const BATCH_JOBS_MAX = 100;
/** Characters of an idempotency key. */
export const IDEMPOTENCY_KEY_CHARS_MAX = 255;

const file = z
  .strictObject({
    path: text.describe("Relative to /workspace, without `.` and `..`."),
    text: text.optional().describe("The content; or base64."),
    base64: text.optional(),
    /** A number, or octal digits, because JSON has no octal numbers. */
    mode: z
      .union([z.number(), z.string().regex(/^0?[0-7]{3}$/)])
      .optional()
      .describe("Permission bits: a number, or octal digits such as 0755."),
  })
  .describe("A file that is there before the program starts.");

/** Limits that are asked for, as a body may have them; `core/limits.ts` reads them. */
export function askedLimits(names: readonly LimitName[]) {
  return z
    .unknown()
    .optional()
    .meta({
      type: "object",
      description: "What is asked for of each limit; more than the ceiling is cut to it.",
      properties: Object.fromEntries(names.map((name) => [name, { type: "number" }])),
      additionalProperties: false,
    });
}

/** On which worker something is to run. */
export const placementBody = z
  .strictObject({ labels: texts.optional().meta({ maxProperties: LABELS_MAX }) })
  .meta({
    description:
      "On a worker of the tenant, or a shared one, that has these labels; {}: on any. Left out: on this server's own host, or on any worker where it has none.",
    examples: [{ labels: { gpu: "a100" } }, {}],
  });

/** The body of `POST /v1/jobs`. */
export const jobBody = z
  .strictObject({
    language: text.optional().meta({ description: "With code; see /v1/languages." }),
    code: text.optional(),
    argv: z.array(text).optional().meta({
      description: "Program and arguments, in place of language and code.",
      maxItems: ARGS_MAX,
    }),
    args: z.array(text).optional().meta({
      description: "Arguments after the script.",
      maxItems: ARGS_MAX,
    }),
    stdin: text.optional(),
    stdin_base64: text.optional().describe("Standard input that is no text; or stdin."),
    files: z.array(file).optional().meta({ maxItems: FILES_MAX }),
    env: texts.optional(),
    limits: askedLimits(LIMIT_NAMES),
    labels: texts.optional().meta({
      description: "Tags, to find jobs by.",
      maxProperties: LABELS_MAX,
    }),
    placement: placementBody.optional(),
    kill_grace_seconds: z.number().optional().meta({
      description: "Time between SIGTERM and SIGKILL when it is cancelled.",
      minimum: 0,
      maximum: KILL_GRACE_SECONDS_MAX,
    }),
  })
  .meta({
    description: "What to run: `language` and `code`, or `argv`.",
    examples: [{ language: "python", code: "print(6 * 7)" }],
  });

/** One job of a batch. */
export const batchEntry = jobBody
  .extend({
    idempotency_key: text
      .optional()
      .meta({ description: "As the header of one job.", maxLength: IDEMPOTENCY_KEY_CHARS_MAX }),
  })
  .describe("What to run, as in POST /v1/jobs.");

/** The body of `POST /v1/jobs/batch`. */
export const batchBody = batchOf(batchEntry).meta({
  description: "Jobs to queue; each is taken or refused alone.",
  examples: [{ jobs: [{ language: "python", code: "print(6 * 7)" }] }],
});

function batchOf<T extends z.ZodType>(entry: T) {
  return z.strictObject({ jobs: z.array(entry).min(1).max(BATCH_JOBS_MAX) });
}

/**
 * The request in a body of `POST /v1/jobs`.
 *
 * @throws CprgError `invalid_argument` naming the field that has the wrong type or is unknown
 */
export function jobRequest(body: unknown): JobRequest {
  return requestOf(parse(jobBody, body), body);
}

/**
 * The jobs of a batch, each as it was sent.
 *
 * @throws CprgError `invalid_argument` for what is no batch, or has too many jobs
 */
export function batchRequest(body: unknown): readonly unknown[] {
  return parse(batchOf(z.unknown()), body).jobs;
}

/**
 * One job of a batch.
 *
 * @throws CprgError as {@link jobRequest} does
 */
export function batchEntryRequest(entry: unknown): {
  request: JobRequest;
  key: string | undefined;
} {
  const { idempotency_key: key, ...body } = parse(batchEntry, entry);
  return { request: requestOf(body, entry), key };
}

/** @throws CprgError `invalid_argument` naming the field */
export function parse<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw shapeError(parsed.error);
  return parsed.data;
}

function requestOf(parsed: z.output<typeof jobBody>, body: unknown): JobRequest {
  refuseDroppedNames(body);
  const { stdin_base64, kill_grace_seconds, files, ...rest } = parsed;
  return {
    ...rest,
    stdinBase64: stdin_base64,
    killGraceSeconds: kill_grace_seconds,
    files: files?.map(({ mode, ...other }) => ({ ...other, mode: modeOf(mode) })),
  };
}

function modeOf(mode: number | string | undefined): number | undefined {
  return typeof mode === "string" ? Number.parseInt(mode, 8) : mode;
}

/** zod's records leave `__proto__` out without a word. */
export function refuseDroppedNames(body: unknown): void {
  const { env, labels, placement } = body as Record<string, unknown>;
  const placed = (placement as { readonly labels?: unknown } | undefined)?.labels;
  for (const [field, names] of Object.entries({ env, labels, "placement.labels": placed })) {
    if (Object.hasOwn(names ?? {}, "__proto__")) {
      throw invalid(`${field}.__proto__`, `Cannot use ${field}.__proto__: not a name`);
    }
  }
}

/** What is wrong with the shape of a body, naming the field. */
export function shapeError(error: z.ZodError): Error {
  const issue = error.issues[0];
  const path = fieldOf(issue?.path ?? []);
  if (issue?.code === "unrecognized_keys") {
    const field = fieldOf([...issue.path, issue.keys[0] ?? ""]).slice(0, 128);
    return invalid(field, `Cannot use field "${field}": unknown name`);
  }
  if (issue?.code === "invalid_union") {
    return invalid(path, `Cannot use ${path}: expected permission bits, such as "0755"`);
  }
  if (issue?.code === "invalid_value") {
    return invalid(path, `Cannot use ${path}: expected ${issue.values.join(" or ")}`);
  }
  if (issue?.code === "invalid_type") {
    return invalid(path, `Cannot use ${path}: expected ${kindOf(issue.expected)}`);
  }
  if (issue?.code === "too_big") {
    return invalid(path, `Cannot use ${path}: at most ${issue.maximum}`);
  }
  if (issue?.code === "too_small") {
    return invalid(path, `Cannot use ${path}: at least ${issue.minimum}`);
  }
  return invalid(path, `Cannot use ${path}: wrong shape`);
}

/** `files[1].path`; the whole body has no name of its own. */
function fieldOf(path: readonly PropertyKey[]): string {
  const field = path
    .map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`))
    .join("")
    .replace(/^\./, "");
  return field === "" ? "body" : field;
}

function kindOf(expected: string): string {
  switch (expected) {
    case "array":
      return "a list";
    case "object":
    case "record":
      return "an object";
    case "number":
      return "a finite number";
    default:
      return `a ${expected}`;
  }
}
