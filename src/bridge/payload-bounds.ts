/** Encoding within the bounds of section 4: nobody sends what its peer has to refuse. */

import { CprgError } from "../core/errors.ts";
import type { Codec } from "./contract.ts";
import { ITEM_BYTES_MAX, UNARY_BYTES_MAX } from "./limits.ts";

/**
 * The payload of a unary request or response.
 *
 * @throws CprgError `out_of_range`, TOO_LARGE
 */
export function encodeUnary<T>(codec: Codec<T>, message: Partial<T>): Uint8Array {
  return bounded(codec.encode(message), UNARY_BYTES_MAX);
}

/**
 * The payload of an item of a stream, where an empty one would be the end.
 *
 * @throws CprgError `out_of_range`, TOO_LARGE; `internal` for a message with nothing set
 */
export function encodeItem<T>(codec: Codec<T>, message: Partial<T>): Uint8Array {
  const payload = bounded(codec.encode(message), ITEM_BYTES_MAX);
  if (payload.length === 0) throw new CprgError("internal", "an item has nothing set");
  return payload;
}

function bounded(payload: Uint8Array, bytesMax: number): Uint8Array {
  if (payload.length <= bytesMax) return payload;
  throw new CprgError("out_of_range", `message of ${payload.length} bytes, above ${bytesMax}`, {
    reason: "TOO_LARGE",
  });
}
