/**
 * Parameters of queries, described once: the schemas here read them and are their description in
 * `/openapi.json`. As strict as bodies: no unknown name, none twice, numbers within their range.
 */

import type { Context } from "hono";
import { z } from "zod";
import { invalid } from "../core/errors.ts";
import { LIST_LIMIT_MAX } from "../core/job.ts";
import { STATUSES } from "../core/reasons.ts";
import { TASK_STATUSES } from "../core/task.ts";
import type { AppEnv } from "./env.ts";
import { readQuery } from "./query.ts";

/** Jobs on a page of the list. */
export const LIST_LIMIT_DEFAULT = 50;
/** Keys on a page of the list. */
export const KEYS_LIMIT_DEFAULT = 100;
/** Tasks on a page at most: each may have 2 MiB of input and result, which are read for it. */
export const TASKS_LIMIT_MAX = 100;
/** How long a result may be waited for. */
export const WAIT_SECONDS_DEFAULT = 60;
export const WAIT_SECONDS_MAX = 300;

/** Characters that an error shows of a value. */
const SHOWN_CHARS = 64;

/** Parameters of one route, by name. */
export type Parameters = Readonly<Record<string, z.ZodType>>;

interface NumberRange {
  readonly min: number;
  readonly max: number;
  readonly default: number;
}

function wholeNumber({ min, max, default: value }: NumberRange) {
  const number = z.int().min(min).max(max);
  const digits = z.string().regex(/^\d{1,16}$/);
  return digits.transform(Number).pipe(number).default(value);
}

function decimal({ min, max }: Pick<NumberRange, "min" | "max">) {
  const number = z.number().min(min).max(max);
  const digits = z.string().regex(/^\d{1,16}(?:\.\d{1,6})?$/);
  return digits.transform(Number).pipe(number);
}

const cursor = z.string().optional().describe("`next_cursor` of the page before.");
const waitSeconds = decimal({ min: 0, max: WAIT_SECONDS_MAX });

const fromSeq = wholeNumber({ min: 1, max: Number.MAX_SAFE_INTEGER, default: 1 }).describe(
  "The first event wanted.",
);

/** Of `GET /v1/jobs`. */
export const listParameters = {
  limit: wholeNumber({ min: 1, max: LIST_LIMIT_MAX, default: LIST_LIMIT_DEFAULT }).describe(
    "Jobs on a page.",
  ),
  cursor,
  status: z.enum(STATUSES).optional(),
  language: z.string().optional(),
  label: z
    .string()
    .regex(/^[^=]+=/)
    .optional()
    .describe("`name=value`: jobs with this label."),
};

/** Of `GET /v1/jobs/{id}/result`. */
export const resultParameters = {
  wait_seconds: waitSeconds.default(WAIT_SECONDS_DEFAULT).describe("How long to wait for the end."),
};

/** Of `GET /v1/jobs/{id}/replay`. */
export const replayParameters = {
  from_seq: fromSeq,
  format: z
    .enum(["json", "ndjson"])
    .optional()
    .describe("In place of Accept: ndjson is the whole log, sealed."),
};

/** Of what follows a log. */
export const followParameters = { from_seq: fromSeq };
/** Of what follows it over a WebSocket: a browser can send no header with one. */
export const socketParameters = { ...followParameters, key: z.string().optional() };

/** Of `GET /v1/sandboxes/{id}/execs`. */
export const execListParameters = {
  limit: wholeNumber({ min: 1, max: LIST_LIMIT_MAX, default: LIST_LIMIT_DEFAULT }).describe(
    "Entries on a page.",
  ),
  cursor,
};

/** Of `GET /v1/sandboxes`. */
export const sandboxListParameters = {
  ...execListParameters,
  status: z.enum(["open", "any"]).default("open"),
};

/** Of `GET /v1/tasks`. */
export const taskListParameters = {
  limit: wholeNumber({ min: 1, max: TASKS_LIMIT_MAX, default: LIST_LIMIT_DEFAULT }).describe(
    "Tasks on a page.",
  ),
  cursor,
  status: z.enum(TASK_STATUSES).optional(),
};

/** Of `GET /v1/tasks/{id}`. */
export const taskParameters = {
  wait_seconds: waitSeconds.default(0).describe("How long to wait for the end."),
};

/** Of `GET /v1/keys`. */
export const keyListParameters = {
  tenant: z.string().optional().describe("Only keys of this tenant."),
  limit: wholeNumber({ min: 1, max: LIST_LIMIT_MAX, default: KEYS_LIMIT_DEFAULT }).describe(
    "Keys on a page.",
  ),
  cursor,
};

/** Of `POST /v1/sandboxes/{id}/execs`. */
export const startParameters = {
  wait_seconds: waitSeconds
    .optional()
    .describe(
      `How long to wait for the end: ${WAIT_SECONDS_DEFAULT}, or 0 with stdin_open or tty, when nothing is said.`,
    ),
};

/** Of `POST /v1/execs/{id}/input`. */
export const eofParameters = {
  eof: z.enum(["true"]).optional().describe("Nothing comes after this."),
};

/** Of `GET /v1/sandboxes/{id}/files/{path}`. */
export const getFileParameters = {
  format: z.enum(["tar", "file"]).optional().describe("In place of Accept."),
};

/** Of `PUT /v1/sandboxes/{id}/files/{path}`. */
export const putFileParameters = {
  mode: z
    .string()
    .regex(/^0?[0-7]{3}$/)
    .optional()
    .describe("Permission bits of a file in octal digits, 644 when nothing is said.")
    .meta({ examples: ["755", "0600"] }),
  merge: z
    .enum(["true", "false"])
    .optional()
    .describe("Of a tar: into the directory that is there, entry by entry."),
  links: z
    .enum(["inside", "any"])
    .optional()
    .describe("Of a tar: where its links may lead, nowhere but inside it when nothing is said."),
};

/**
 * The parameters of a request.
 *
 * @throws CprgError `invalid_argument` naming the parameter
 */
export function readParameters<P extends Parameters>(
  c: Context<AppEnv>,
  parameters: P,
): { [K in keyof P]: z.output<P[K]> } {
  const query = readQuery(c, Object.keys(parameters));
  const read = Object.entries(parameters).map(([name, schema]) => {
    const parsed = schema.safeParse(query[name]);
    if (!parsed.success) throw refused(name, { schema, text: query[name] ?? "" });
    return [name, parsed.data];
  });
  return Object.fromEntries(read);
}

/** The schema of a parameter's value, as JSON Schema: what a client sends, read as its type. */
export function parameterSchema(schema: z.ZodType): Record<string, unknown> {
  const { $schema: _, ...described } = z.toJSONSchema(schema, { io: "output" });
  return described;
}

function refused(name: string, { schema, text }: { schema: z.ZodType; text: string }): Error {
  const { type, minimum, maximum, enum: known, description } = parameterSchema(schema);
  const problem = `Cannot use ${name} "${text.slice(0, SHOWN_CHARS)}"`;
  if (Array.isArray(known)) {
    return invalid(name, `${problem}: unknown name`, `Known: ${known.join(", ")}`);
  }
  if (type === "string") return invalid(name, `${problem}: wrong form`, String(description));
  const kind = type === "integer" ? "a whole number" : "a number";
  return invalid(name, `${problem}: not ${kind} from ${minimum} to ${maximum}`);
}
