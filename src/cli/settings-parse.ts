/** Parsers of setting values. Each names where the value was written when it refuses it. */

import { isAbsolute, resolve } from "node:path";
import { parseModelName } from "../control-plane/runners/agent-model.ts";
import { CprgError } from "../core/errors.ts";
import {
  CEILING_LIMITS,
  type Ceilings,
  ceilingMost,
  LIMIT_NAMES,
  LIMIT_RULES,
  type LimitName,
  type Limits,
  SMALLEST_FRACTION,
} from "../core/limits.ts";
import { LOG_LEVELS, type LogLevel } from "../core/log.ts";
import type { Bind } from "../sandbox/root-plan.ts";
import { type KeyEntry, parseKeyList, type Role } from "../tenancy/keys.ts";
import { parseSwitch, splitList, usageError } from "./flags.ts";

/** Where a server listens. */
export interface Address {
  /** Name or address, without the brackets of IPv6. */
  readonly host: string;
  readonly port: number;
}

/** What is logged: a level, and others for some parts of the program. */
export interface LogSpec {
  readonly level: LogLevel;
  readonly byScope: Readonly<Record<string, LogLevel>>;
}

/** A value as it was written: `limits` and `list` are lists (`name=value` for the former). */
export type RawSetting = string | readonly string[];

/** `host:port`, `[v6]:port`, `:port` (every address) or `port`. */
export function parseAddress(raw: RawSetting, where: string): Address {
  const text = one(raw, where);
  const match = /^(?:(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]/\s]*)):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw refusal(where, text, "expected HOST:PORT, such as 127.0.0.1:7300");
  }
  const host = match[1] ?? match[2] ?? "127.0.0.1";
  return { host: host === "" ? "0.0.0.0" : host, port };
}

/** `127.0.0.1:7300`, `[::1]:7300`. */
export function formatAddress({ host, port }: Address): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Whether only this host can reach it: 127.0.0.0/8, ::1 and localhost. */
export function isLoopback({ host }: Address): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** Names of hosts, without ports. */
export function parseHosts(raw: RawSetting, where: string): readonly string[] {
  return parseWords(raw).map((word) => {
    const name = word.toLowerCase();
    if (name.length <= 253 && /^[a-z0-9_]([a-z0-9_.-]*[a-z0-9])?$/.test(name)) return name;
    throw refusal(where, word, "expected a host name, such as cprg.example.org");
  });
}

/** A path; a relative one starts at the working directory. */
export function parsePath(raw: RawSetting, where: string): string {
  const text = one(raw, where);
  if (text === "" || text.includes("\0")) throw refusal(where, text, "expected a path");
  return isAbsolute(text) ? text : resolve(text);
}

/** One word of visible ASCII, as a header or a URL can hold it. Its text is never repeated. */
export function parseWord(raw: RawSetting, where: string): string {
  const text = one(raw, where);
  if (/^[\x21-\x7e]{1,4096}$/.test(text)) return text;
  throw usageError(`Cannot use ${where}: expected 1 to 4096 visible ASCII characters`);
}

/** Characters of the one bearer of all workers: nobody is to guess it. */
const BEARER_CHARS_MIN = 16;

/** The one bearer of all workers. */
export function parseBearer(raw: RawSetting, where: string): string {
  const text = parseWord(raw, where);
  if (text.length >= BEARER_CHARS_MIN) return text;
  throw usageError(
    `Cannot use ${where}: shorter than ${BEARER_CHARS_MIN} characters`,
    "openssl rand -hex 16 makes one",
  );
}

/** The name of a model: `openai:gpt-5`. */
export function parseModel(raw: RawSetting, where: string): string | null {
  const text = one(raw, where);
  try {
    parseModelName(text);
    return text;
  } catch (error) {
    throw refusal(where, text, CprgError.from(error).hint ?? "not the name of a model");
  }
}

/** A whole number within bounds. */
export function parseInteger(bounds: { readonly least: number; readonly most: number }) {
  return (raw: RawSetting, where: string): number => {
    const text = one(raw, where);
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= bounds.least && value <= bounds.most)) {
      throw refusal(where, text, `expected a whole number from ${bounds.least} to ${bounds.most}`);
    }
    return value;
  };
}

/** true or false, in the words of {@link parseSwitch}. */
export function parseTruth(raw: RawSetting, where: string): boolean {
  return parseSwitch(one(raw, where), where);
}

/** One of the names, or another word for one. */
export function parseChoice<const C extends Readonly<Record<string, readonly string[]>>>(words: C) {
  return (raw: RawSetting, where: string): Extract<keyof C, string> => {
    const text = one(raw, where).toLowerCase();
    for (const name of Object.keys(words) as Extract<keyof C, string>[]) {
      if (text === name || words[name]?.includes(text)) return name;
    }
    throw refusal(where, text, `expected ${Object.keys(words).join(", ")}`);
  };
}

/** Several words. */
export function parseWords(raw: RawSetting): readonly string[] {
  return typeof raw === "string" ? splitList(raw) : raw.flatMap((part) => splitList(part));
}

/** Layers without which programs can be told to run all the same. */
const GIVEN_UP_LAYERS: readonly string[] = ["cgroup", "identity"];

/** Layers that may be missing; another name would give up nothing, and say nothing of it. */
export function parseLayers(raw: RawSetting, where: string): readonly string[] {
  const layers = parseWords(raw);
  const unknown = layers.find((layer) => !GIVEN_UP_LAYERS.includes(layer));
  if (unknown === undefined) return layers;
  throw refusal(where, unknown, `only ${GIVEN_UP_LAYERS.join(", ")} may be missing`);
}

/** `/host/path` or `/host/path:/path/inside`. */
export function parseBinds(raw: RawSetting, where: string): readonly Bind[] {
  return parseWords(raw).map((word) => {
    const [source = "", target = source, ...rest] = word.split(":");
    if (isAbsolute(source) && isAbsolute(target) && rest.length === 0) return { source, target };
    throw refusal(where, word, "expected an absolute path, or two with a colon between");
  });
}

/** `name=value` pairs over the ceilings of the table. */
export function parseCeilings(raw: RawSetting, where: string): Limits {
  return Object.freeze({ ...CEILING_LIMITS, ...parseSomeCeilings(raw, where) });
}

/** `name=value` pairs alone. */
export function parseSomeCeilings(raw: RawSetting, where: string): Ceilings {
  const ceilings: Partial<Record<LimitName, number>> = {};
  for (const pair of parseWords(raw)) {
    const [name = "", text = ""] = splitPair(pair, where);
    if (!isLimitName(name)) {
      throw refusal(where, name, `unknown limit; known: ${LIMIT_NAMES.join(", ")}`);
    }
    ceilings[name] = parseCeiling(name, text, where);
  }
  return Object.freeze(ceilings);
}

function parseCeiling(name: LimitName, text: string, where: string): number {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  const { fraction } = LIMIT_RULES[name];
  const most = ceilingMost(name);
  if (value > most && Number.isFinite(value)) {
    throw refusal(where, `${name}=${text}`, `expected at most ${most}, the longest timer there is`);
  }
  const isUsable = Number.isFinite(value) && value >= (fraction ? SMALLEST_FRACTION : 1);
  if (isUsable && (fraction || Number.isSafeInteger(value))) return value;
  throw refusal(where, `${name}=${text}`, "expected a number above 0");
}

function isLimitName(name: string): name is LimitName {
  return Object.hasOwn(LIMIT_RULES, name);
}

/** Keys of a role, as `tenant:key` or bare. */
export function parseKeys(role: Role) {
  return (raw: RawSetting, where: string): readonly KeyEntry[] =>
    parseKeyList(typeof raw === "string" ? raw : raw.join(","), { role, source: where });
}

/** `info`, or `info,http=debug`. */
export function parseLogSpec(raw: RawSetting, where: string): LogSpec {
  let level: LogLevel = "info";
  const byScope: Record<string, LogLevel> = {};
  for (const part of parseWords(raw)) {
    const cut = part.indexOf("=");
    const word = part.slice(cut + 1).toLowerCase();
    const found = LOG_LEVELS.find((known) => known === word);
    if (found === undefined) throw refusal(where, part, `expected ${LOG_LEVELS.join(", ")}`);
    if (cut < 0) level = found;
    else byScope[part.slice(0, cut)] = found;
  }
  return { level, byScope };
}

/** `name=value` taken apart at the first `=`. */
export function splitPair(pair: string, where: string): [string, string] {
  const cut = pair.indexOf("=");
  if (cut <= 0) throw refusal(where, pair, "expected NAME=VALUE");
  return [pair.slice(0, cut), pair.slice(cut + 1)];
}

function one(raw: RawSetting, where: string): string {
  if (typeof raw === "string") return raw.trim();
  if (raw.length === 1) return (raw[0] ?? "").trim();
  throw refusal(where, raw.join(","), "expected one value");
}

function refusal(where: string, text: string, expected: string) {
  return usageError(`Cannot use ${where} "${text}": ${expected}`);
}
