/** What the actions of `cprg sandbox` share. */

import { isId } from "../core/ids.ts";
import { asAnswer, asText } from "./answers.ts";
import { requestJson, type ServerAccess } from "./client.ts";
import type { ClientFlagValues } from "./client-flags.ts";
import { usageError } from "./flags.ts";
import { splitPair } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

/** Flags of the command; each action heeds its own. */
export interface SandboxFlags extends ClientFlagValues {
  readonly idle: string | undefined;
  readonly lifetime: string | undefined;
  readonly limit: readonly string[];
  readonly env: readonly string[];
  readonly label: readonly string[];
  readonly place: readonly string[];
  readonly stdin: boolean;
  readonly all: boolean;
  readonly json: boolean;
}

/** What an action is given. */
export interface SandboxContext {
  readonly flags: SandboxFlags;
  /** After the action's name. */
  readonly args: readonly string[];
  readonly rest: readonly string[] | null;
  readonly terminal: Terminal;
}

/** Ending what runs in a sandbox takes a while. */
const END_TIMEOUT_MS = 120_000;

/** A sandbox's id as it was typed. */
export function parseSandboxId(text: string | undefined): string {
  const id = text?.toLowerCase() ?? "";
  if (isId(id)) return id;
  throw usageError(
    `Cannot use sandbox "${text ?? ""}": expected an id such as 0197a3f0-…`,
    '"cprg sandbox list" lists them',
  );
}

/** @throws CprgError when there are more words than an action takes */
export function checkCount({ args, rest }: SandboxContext, most: number, takesRest = false): void {
  const extra = args[most] ?? (takesRest ? undefined : rest?.[0]);
  if (extra !== undefined) throw usageError(`Cannot use argument "${extra}": one too many`);
}

/** `NAME=VALUE` pairs of a flag. */
export function pairsOf(texts: readonly string[], flag: string): Record<string, string> {
  return Object.fromEntries(texts.map((text) => splitPair(text, flag)));
}

/** `/v1/sandboxes/ID`. */
export function sandboxPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

/** `/v1/execs/ID`. */
export function execPath(id: string): string {
  return `/v1/execs/${encodeURIComponent(id)}`;
}

/** Ends a sandbox; what the server says of it. */
export async function endSandbox(access: ServerAccess, id: string): Promise<unknown> {
  const request = { method: "DELETE", path: sandboxPath(id), timeoutMs: END_TIMEOUT_MS } as const;
  return (await requestJson(access, request)).body;
}

/** The id in a server's answer. */
export function idIn(body: unknown, name: string): string {
  return asText(asAnswer(body)[name]);
}
