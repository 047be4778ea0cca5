/** Where something is to run: on a worker that has all of some labels. */

import { CprgError } from "./errors.ts";
import { checkedLabels } from "./program-rules.ts";

/** A place that is asked for. */
export interface Placement {
  /** What the worker must have; empty: any worker. */
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * A placement as it was asked for; null: none was.
 *
 * @throws CprgError `invalid_argument` naming the label at fault
 */
export function placementOf(
  asked: { readonly labels?: Readonly<Record<string, string>> | undefined } | undefined,
): Placement | null {
  if (asked === undefined) return null;
  try {
    return { labels: checkedLabels(asked.labels ?? {}) };
  } catch (error) {
    const { code, message, field, hint } = CprgError.from(error);
    const where = field === undefined ? {} : { field: `placement.${field}` };
    throw new CprgError(code, message, { ...where, ...(hint === undefined ? {} : { hint }) });
  }
}
