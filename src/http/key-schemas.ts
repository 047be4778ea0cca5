/** Shapes of the bodies of `/v1/keys`; what a value may be is the business of `src/tenancy`. */

import { z } from "zod";
import { ROLES } from "../core/key.ts";
import { ceilingMost, LIMIT_NAMES, LIMIT_RULES, SMALLEST_FRACTION } from "../core/limits.ts";
import { keyCeilings } from "../tenancy/key-ceilings.ts";
import { KEY_SECONDS_MAX, type KeyRequest } from "../tenancy/key-registry.ts";
import { DEFAULT_TENANT } from "../tenancy/keys.ts";
import { RATE_PER_MIN_MAX } from "../tenancy/rate-windows.ts";
import { shapeError } from "./schemas.ts";

/** How long the old key goes on after a rotation, unless told otherwise. */
export const OVERLAP_SECONDS_DEFAULT = 3600;

const ceilings = Object.fromEntries(
  LIMIT_NAMES.map((name) => {
    const most = ceilingMost(name);
    const range = {
      minimum: LIMIT_RULES[name].fraction ? SMALLEST_FRACTION : 1,
      ...(Number.isFinite(most) ? { maximum: most } : {}),
    };
    return [name, z.number().optional().meta(range)];
  }),
);

/** The body of `POST /v1/keys`. */
export const keyBody = z
  .strictObject({
    tenant: z
      .string()
      .optional()
      .meta({ description: "Whose jobs it may use.", default: DEFAULT_TENANT }),
    role: z.enum(ROLES).optional().meta({ default: "tenant" }),
    name: z.string().optional().describe("For people."),
    expires_in_seconds: z.number().nullable().optional().meta({
      description: "How long it lives; null or nothing: until it is revoked.",
      minimum: 1,
      maximum: KEY_SECONDS_MAX,
    }),
    rate_per_min: z.number().nullable().optional().meta({
      description: "Requests in a window of a minute; null or nothing: the server's rate.",
      type: "integer",
      minimum: 1,
      maximum: RATE_PER_MIN_MAX,
    }),
    ceilings: z
      .strictObject(ceilings)
      .nullable()
      .optional()
      .describe("Ceilings of what runs under it; the server's hold for the others."),
  })
  .meta({ description: "The key to make.", examples: [{}, { tenant: "acme", name: "ci" }] });

/** The body of `POST /v1/keys/{id}/rotate`. */
export const rotateBody = z
  .strictObject({
    overlap_seconds: z.number().optional().meta({
      description: "How long the old key goes on; 0: it ends at once.",
      minimum: 0,
      maximum: KEY_SECONDS_MAX,
      default: OVERLAP_SECONDS_DEFAULT,
    }),
  })
  .meta({ description: "How the old key ends.", examples: [{}, { overlap_seconds: 60 }] });

/**
 * The request in a body of `POST /v1/keys`.
 *
 * @throws CprgError `invalid_argument` naming the field
 */
export function keyRequest(body: unknown): KeyRequest {
  const { tenant, role, name, ceilings, ...rest } = parse(keyBody, body);
  return {
    tenant: tenant ?? DEFAULT_TENANT,
    role: role ?? "tenant",
    ...(name === undefined ? {} : { name }),
    ceilings: ceilings == null ? null : keyCeilings(given(ceilings)),
    ratePerMin: rest.rate_per_min ?? null,
    expiresInSeconds: rest.expires_in_seconds ?? null,
  };
}

/** The overlap in a body of `POST /v1/keys/{id}/rotate`, in seconds. */
export function rotateRequest(body: unknown): number {
  return parse(rotateBody, body).overlap_seconds ?? OVERLAP_SECONDS_DEFAULT;
}

function parse<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw shapeError(parsed.error);
  return parsed.data;
}

function given(ceilings: Readonly<Record<string, number | undefined>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(ceilings).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
}
