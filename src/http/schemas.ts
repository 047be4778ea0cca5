/**
 * Shapes of request bodies. Only shapes: what a value may be is the business of `jobs/spec.ts`, where
 * `cprg run` finds it as well.
 */

import { z } from "zod";
import { invalid } from "../core/errors.ts";
import type { JobRequest } from "../jobs/spec.ts";

// The binary forbids code made from strings, which zod would use where it can.
z.config({ jitless: true });

const text = z.string();
const texts = z.record(z.string(), z.string());

const file = z.strictObject({
  path: text,
  text: text.optional(),
  base64: text.optional(),
  /** A number, or octal digits, because JSON has no octal numbers. */
  mode: z.union([z.number(), z.string().regex(/^0?[0-7]{3}$/)]).optional(),
});

const jobBody = z.strictObject({
  language: text.optional(),
  code: text.optional(),
  argv: z.array(text).optional(),
  args: z.array(text).optional(),
  stdin: text.optional(),
  stdin_base64: text.optional(),
  files: z.array(file).optional(),
  env: texts.optional(),
  limits: z.unknown().optional(),
  labels: texts.optional(),
  kill_grace_seconds: z.number().optional(),
});

/**
 * The request in a body of `POST /v1/jobs`.
 *
 * @throws CprgError `invalid_argument` naming the field that has the wrong type or is unknown
 */
export function jobRequest(body: unknown): JobRequest {
  const parsed = jobBody.safeParse(body);
  if (!parsed.success) throw shapeError(parsed.error);
  refuseDroppedNames(body as Record<string, unknown>);
  const { stdin_base64, kill_grace_seconds, files, ...rest } = parsed.data;
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
function refuseDroppedNames(body: Record<string, unknown>): void {
  for (const field of ["env", "labels"]) {
    if (Object.hasOwn(body[field] ?? {}, "__proto__")) {
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
