/** Ceilings of one key, as an object of numbers. */

import { invalid } from "../core/errors.ts";
import {
  type Ceilings,
  ceilingMost,
  LIMIT_RULES,
  type LimitName,
  SMALLEST_FRACTION,
} from "../core/limits.ts";

/**
 * @param given numbers by the names of limits
 * @throws CprgError `invalid_argument` naming the field
 */
export function keyCeilings(given: Readonly<Record<string, number>>): Ceilings {
  const ceilings: Partial<Record<LimitName, number>> = {};
  for (const [name, value] of Object.entries(given)) {
    const field = `ceilings.${name.slice(0, 64)}`;
    if (!Object.hasOwn(LIMIT_RULES, name))
      throw invalid(field, `Cannot use ${field}: unknown name`);
    const limit = name as LimitName;
    const { fraction } = LIMIT_RULES[limit];
    const isWhole = fraction || Number.isSafeInteger(value);
    const least = fraction ? SMALLEST_FRACTION : 1;
    if (!(isWhole && Number.isFinite(value) && value >= least && value <= ceilingMost(limit))) {
      const expected = fraction ? `at least ${least}` : "a whole number above 0";
      throw invalid(field, `Cannot use ${field}: expected ${expected}`);
    }
    ceilings[limit] = value;
  }
  return Object.freeze(ceilings);
}
