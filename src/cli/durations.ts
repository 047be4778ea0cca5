/** Times as they are written on command lines. */

import { usageError } from "./flags.ts";

/** Seconds in the units that times are written in. */
const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** `90s`, `15m`, `12h`, `30d` or bare seconds, in seconds. @throws CprgError USAGE naming `where` */
export function parseSeconds(text: string, where: string): number {
  const match = /^(\d{1,9})([smhd]?)$/.exec(text);
  if (match !== null) return Number(match[1]) * (UNIT_SECONDS[match[2] || "s"] ?? 1);
  throw usageError(`Cannot use ${where} "${text}": expected a time such as 90s, 15m, 12h or 30d`);
}
