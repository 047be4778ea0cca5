/** A claim's place on this host, with its repository in it. */

import type { ClaimOrder } from "./claim-request.ts";
import { cloneRepository } from "./clone.ts";
import { PlainPlace, type PlainPlaceOptions } from "./plain-place.ts";

/**
 * Opens the place of a claim.
 *
 * @throws CprgError `failed_precondition` CLONE_FAILED; the signal's reason
 */
export async function openPlainPlace(
  options: PlainPlaceOptions,
  { repository, env }: Pick<ClaimOrder, "repository" | "env">,
  signal: AbortSignal,
): Promise<PlainPlace> {
  const place = new PlainPlace(options);
  if (repository === null) return place;
  try {
    await cloneRepository(place, { ...repository, env, signal });
    return place;
  } catch (error) {
    await place.release();
    throw error;
  }
}
