/** Limits on the command line: `--limit name=value`, and `--timeout` and `--mem` in usual units. */

import { LIMIT_NAMES, LIMIT_RULES } from "../core/limits.ts";
import { usageError } from "./flags.ts";
import { splitPair } from "./settings-parse.ts";
import { nearest } from "./suggest.ts";

/** Flags that set limits. */
export interface RunLimitFlags {
  readonly limit: readonly string[];
  readonly timeout: string | undefined;
  readonly mem: string | undefined;
}

/** Limits as asked; the short flags win over `--limit`. */
export function parseRunLimits(flags: RunLimitFlags): Record<string, number> {
  const limits: Record<string, number> = {};
  for (const pair of flags.limit) {
    const [name, text] = splitPair(pair, "--limit");
    if (!Object.hasOwn(LIMIT_RULES, name)) {
      const near = nearest(name, LIMIT_NAMES);
      throw usageError(
        `Cannot use limit "${name}": unknown name`,
        near === null ? `Known limits: ${LIMIT_NAMES.join(", ")}` : `Did you mean ${near}?`,
      );
    }
    limits[name] = parseNumber(text, `--limit ${name}`);
  }
  if (flags.timeout !== undefined) limits["wall_seconds"] = parseTimeout(flags.timeout);
  if (flags.mem !== undefined) limits["mem_mb"] = parseMemory(flags.mem);
  return limits;
}

/** Seconds of `5`, `1.5s`, `500ms` or `2m`. */
export function parseTimeout(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m)?$/.exec(text.trim());
  if (match === null) throw usageError(`Cannot use --timeout "${text}": expected 5, 500ms or 2m`);
  const factor = { ms: 0.001, s: 1, m: 60 }[match[2] ?? "s"] ?? 1;
  return Number(match[1]) * factor;
}

/** MiB of `512`, `512m` or `2g`. */
export function parseMemory(text: string): number {
  const match = /^(\d+)(m|g)?(?:i?b)?$/i.exec(text.trim());
  if (match === null) throw usageError(`Cannot use --mem "${text}": expected 512, 512m or 2g`);
  return Number(match[1]) * (match[2]?.toLowerCase() === "g" ? 1024 : 1);
}

/** A decimal number; what it may be is decided where limits are parsed. */
function parseNumber(text: string, where: string): number {
  const isDecimal = /^-?\d+(?:\.\d+)?$/.test(text.trim());
  if (!isDecimal) throw usageError(`Cannot use ${where} "${text}": expected a number`);
  return Number(text);
}
