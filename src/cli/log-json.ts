/**
 * The log of `cprg serve`: one JSON object a line on standard error, levels by part. The one place
 * where secrets are taken out of what the parts say.
 */

import { timestamp } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { LOG_LEVELS, type Log, type LogFields, type LogLevel } from "../core/log.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { LogSpec } from "./settings-parse.ts";
import type { ByteSink } from "./terminal.ts";

/** Lines that may wait for a reader that does not read; further ones are counted and dropped. */
export const LOG_LINES_MAX = 1024;

/** Longest line, in characters; a longer one loses its fields. */
export const LOG_LINE_LENGTH_MAX = 16 * 1024;

/** Logs of the parts of the program. */
export interface JsonLog {
  /** The log of one part: `http`, `sandbox`, … */
  scope(name: string): Log;
}

/**
 * A log on a sink.
 *
 * @param now milliseconds since 1970
 */
export function jsonLog(
  sink: ByteSink,
  options: {
    readonly spec: LogSpec;
    readonly now: () => number;
    /** What no line shows. */
    readonly secrets?: Pick<SecretSet, "redact">;
  },
): JsonLog {
  const { spec, now, secrets } = options;
  const hide = (text: string): string => secrets?.redact(text) ?? text;
  let waiting = 0;
  let dropped = 0;
  const put = (line: string): void => {
    waiting += 1;
    sink
      .write(line)
      // Nobody reads the log: there is nowhere left to say so.
      .catch(() => undefined)
      .finally(() => {
        waiting -= 1;
        if (waiting === 0 && dropped > 0) {
          const lost = dropped;
          dropped = 0;
          const head = { at: now(), level: "warn", scope: "log", hide } as const;
          put(formatRecord(head, "records lost", { lost }));
        }
      });
  };
  const record = (scope: string, level: LogLevel, message: string, fields?: LogFields): void => {
    if (rank(level) < rank(spec.byScope[scope] ?? spec.level)) return;
    if (waiting >= LOG_LINES_MAX) dropped += 1;
    else put(formatRecord({ at: now(), level, scope, hide }, message, fields));
  };
  return {
    scope: (name) => ({
      debug: (message, fields) => record(name, "debug", message, fields),
      info: (message, fields) => record(name, "info", message, fields),
      warn: (message, fields) => record(name, "warn", message, fields),
      error: (message, fields) => record(name, "error", message, fields),
    }),
  };
}

function rank(level: LogLevel): number {
  return LOG_LEVELS.indexOf(level);
}

interface RecordHead {
  readonly at: number;
  readonly level: LogLevel;
  readonly scope: string;
  hide(text: string): string;
}

function formatRecord(head: RecordHead, message: string, fields: LogFields = {}): string {
  const { level, scope, hide } = head;
  const fixed = { at: timestamp(head.at), level, scope, message: hide(message) };
  // The fixed names win: a field cannot pass for another record's level or time.
  const line = safeJson({ ...fields, ...fixed }, hide);
  if (line !== null && line.length <= LOG_LINE_LENGTH_MAX) return `${line}\n`;
  return `${JSON.stringify({ ...fixed, message: fixed.message.slice(0, 1024), cut: true })}\n`;
}

/** JSON with errors spelled out and secrets hidden, or null for what has none (cycles). */
function safeJson(value: unknown, hide: RecordHead["hide"]): string | null {
  try {
    // Before it becomes JSON: there a secret could overlap with an escape.
    const line = JSON.stringify(value, (_, part: unknown) => hidden(plain(part), hide));
    if (hide(line) === line) return line;
    return JSON.stringify(JSON.parse(line), (_, part: unknown) => withHiddenNames(part, hide));
  } catch {
    return null;
  }
}

function hidden(value: unknown, hide: RecordHead["hide"]): unknown {
  return typeof value === "string" ? hide(value) : value;
}

function withHiddenNames(value: unknown, hide: RecordHead["hide"]): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [hide(name), part]));
}

function plain(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  return CprgError.is(value)
    ? { name, code: value.code, message, reason: value.reason, setup: value.setup, cause }
    : { name, message, stack, cause };
}
