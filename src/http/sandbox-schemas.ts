/** Shapes of the bodies of sandboxes and execs; what a value may be is `sandboxes/spec.ts`'s business. */

import { z } from "zod";
import type { ExecRequest, SandboxRequest } from "../sandboxes/spec.ts";
import { refuseDroppedNames, shapeError } from "./schemas.ts";

const text = z.string();
const texts = z.record(z.string(), z.string());

const sandboxBody = z.strictObject({
  limits: z.unknown().optional(),
  labels: texts.optional(),
  env: texts.optional(),
  idle_seconds: z.number().optional(),
  lifetime_seconds: z.number().optional(),
});

const size = { columns: z.number().optional(), rows: z.number().optional() };

const execBody = z.strictObject({
  argv: z.array(text),
  env: texts.optional(),
  directory: text.optional(),
  stdin: text.optional(),
  stdin_base64: text.optional(),
  stdin_open: z.boolean().optional(),
  tty: z.strictObject(size).optional(),
  limits: z.unknown().optional(),
  kill_grace_seconds: z.number().optional(),
});

const signalBody = z.strictObject({ signal: text });
const sizeBody = z.strictObject(size);

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
