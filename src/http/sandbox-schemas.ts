/** Shapes of the bodies of sandboxes and execs; what a value may be is `sandboxes/spec.ts`'s business. */

import { z } from "zod";
import { LIMIT_NAMES } from "../core/limits.ts";
import { ARGS_MAX, KILL_GRACE_SECONDS_MAX, LABELS_MAX } from "../core/program-rules.ts";
import {
  IDLE_SECONDS,
  LIFETIME_SECONDS,
  TERMINAL_SIDE_MAX,
  type TimeRule,
} from "../sandboxes/bounds.ts";
import { EXEC_LIMITS, type ExecRequest, type SandboxRequest } from "../sandboxes/spec.ts";
import { askedLimits, placementBody, refuseDroppedNames, shapeError } from "./schemas.ts";

const text = z.string();
const texts = z.record(z.string(), z.string());

function seconds({ default: value, least, ceiling }: TimeRule, what: string) {
  return z
    .number()
    .optional()
    .meta({
      description: `${what}; more than ${ceiling} counts as ${ceiling}.`,
      minimum: least,
      default: value,
    });
}

/** The body of `POST /v1/sandboxes`. */
export const sandboxBody = z
  .strictObject({
    limits: askedLimits(LIMIT_NAMES),
    labels: texts.optional().meta({ description: "Tags, for people.", maxProperties: LABELS_MAX }),
    placement: placementBody.optional(),
    env: texts.optional().describe("Variables of everything that runs in it."),
    idle_seconds: seconds(IDLE_SECONDS, "It ends when it was not used for so long"),
    lifetime_seconds: seconds(LIFETIME_SECONDS, "It ends after so long in any case"),
  })
  .meta({
    description: "What to open.",
    examples: [{}, { limits: { wall_seconds: 30 } }, { placement: { labels: { os: "linux" } } }],
  });

const wholeSide = z.number().meta({ type: "integer", minimum: 1, maximum: TERMINAL_SIDE_MAX });
const side = wholeSide.optional().meta({ type: "integer", minimum: 1, maximum: TERMINAL_SIDE_MAX });
const size = { columns: side, rows: side };

/** The body of `POST /v1/sandboxes/{id}/execs`. */
export const execBody = z
  .strictObject({
    argv: z.array(text).meta({
      description: "Program and arguments.",
      minItems: 1,
      maxItems: ARGS_MAX,
    }),
    env: texts.optional().describe("Variables, beside those of the sandbox."),
    directory: text.optional().meta({
      description: "Where it starts: an absolute path inside; /workspace when none is said.",
      examples: ["/workspace", "/tmp"],
    }),
    stdin: text.optional(),
    stdin_base64: text.optional().describe("Standard input that is no text; or stdin."),
    stdin_open: z.boolean().optional().describe("Keeps standard input open for /input."),
    tty: z.strictObject(size).optional().describe("Gives it a terminal, which is its input too."),
    limits: askedLimits(EXEC_LIMITS),
    kill_grace_seconds: z.number().optional().meta({
      description: "Time between SIGTERM and SIGKILL when it is cancelled.",
      minimum: 0,
      maximum: KILL_GRACE_SECONDS_MAX,
    }),
  })
  .meta({
    description: "What to run.",
    examples: [
      { argv: ["python3", "-c", "print(6 * 7)"] },
      { argv: ["cat"], stdin_open: true },
      { argv: ["sh"], tty: { columns: 80, rows: 24 } },
    ],
  });

/** The body of `POST /v1/execs/{id}/signal`. */
export const signalBody = z
  .strictObject({ signal: text.describe("Its name, as in signal(7).") })
  .meta({ examples: [{ signal: "SIGINT" }] });

/** The body of `POST /v1/execs/{id}/resize`. */
export const sizeBody = z
  .strictObject({ columns: wholeSide, rows: wholeSide })
  .meta({ description: "Characters.", examples: [{ columns: 120, rows: 40 }] });

/** @throws CprgError `invalid_argument` naming the field that has the wrong type or is unknown */
function parse<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw shapeError(parsed.error);
  refuseDroppedNames(body);
  return parsed.data;
}

/** The request in a body of `POST /v1/sandboxes`. @throws CprgError as all of this file */
export function sandboxRequest(body: unknown): SandboxRequest {
  const { idle_seconds, lifetime_seconds, ...rest } = parse(sandboxBody, body);
  return { ...rest, idleSeconds: idle_seconds, lifetimeSeconds: lifetime_seconds };
}

/** The request in a body of `POST /v1/sandboxes/{id}/execs`. */
export function execRequest(body: unknown): ExecRequest {
  const { stdin_base64, stdin_open, tty, kill_grace_seconds, ...rest } = parse(execBody, body);
  return {
    ...rest,
    stdinBase64: stdin_base64,
    isInputOpen: stdin_open,
    killGraceSeconds: kill_grace_seconds,
    ...(tty === undefined ? {} : { terminal: tty }),
  };
}

/** The name in a body of `POST /v1/execs/{id}/signal`. */
export function signalRequest(body: unknown): string {
  return parse(signalBody, body).signal;
}

/** The size in a body of `POST /v1/execs/{id}/resize`. */
export function sizeRequest(body: unknown): NonNullable<ExecRequest["terminal"]> {
  return parse(sizeBody, body);
}
