/** Shapes of answers about keys; the compiler compares them with the views. */

import { z } from "zod";
import { ROLES } from "../core/key.ts";
import { type Ceilings, LIMIT_NAMES } from "../core/limits.ts";
import type { KeyView, MadeKeyView } from "./key-views.ts";

const text = z.string();
const time = z.iso.datetime({ precision: 3 });

const ceilings = z.strictObject(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, z.number().optional()])),
) as unknown as z.ZodType<Ceilings>;

const shape = {
  key_id: z.uuid(),
  tenant: text,
  role: z.enum(ROLES),
  name: text,
  prefix: text.describe("Its first characters, to tell keys apart by sight."),
  ceilings: ceilings.nullable(),
  rate_per_min: z.int().nullable(),
  created_at: time,
  last_used_at: time.nullable(),
  expires_at: time.nullable(),
  rotated_at: time.nullable().describe("When it got its successor."),
  revoked_at: time.nullable(),
};

/** A key, without the key itself. */
export const key: z.ZodType<KeyView> = z.strictObject(shape);

/** A key that was just made. */
export const madeKey: z.ZodType<MadeKeyView> = z.strictObject({
  ...shape,
  key: text.describe("The key itself, which is not kept."),
});

/** A page of keys. */
export const keyList = z.strictObject({
  keys: z.array(key),
  next_cursor: text.nullable(),
});
