/** The flags of commands that talk to a server, and how they find it and their key. */

import { readFile } from "node:fs/promises";
import { CprgError } from "../core/errors.ts";
import { isId } from "../core/ids.ts";
import { isLocalServer, parseServer, type ServerAccess } from "./client.ts";
import type { FlagSpecs } from "./command.ts";
import { usageError } from "./flags.ts";
import { defaultDataDir, keyFile } from "./paths.ts";
import type { Terminal } from "./terminal.ts";

/** Where a server is looked for when nobody says. */
export const DEFAULT_SERVER = "http://127.0.0.1:7300";

/** `--server`, `--key`, `--data-dir`. */
export const CLIENT_FLAGS = {
  server: {
    kind: "text",
    value: "URL",
    env: "CPRG_SERVER",
    doc: `The server; default ${DEFAULT_SERVER}`,
  },
  key: {
    kind: "text",
    value: "KEY",
    env: "CPRG_KEY",
    doc: "API key; default: the key file of this user's data directory, for a server on this host",
  },
  ca: {
    kind: "text",
    value: "FILE",
    env: "CPRG_CA",
    doc: "Certificates in PEM that a server's must come from, instead of the system's",
  },
  "data-dir": {
    kind: "text",
    value: "DIR",
    env: "CPRG_DATA_DIR",
    doc: "Directory with the key file; default /var/lib/cprg, or $XDG_DATA_HOME/cprg",
  },
} as const satisfies FlagSpecs;

/** `--json`, for every command that prints a table. */
export const JSON_FLAG = {
  json: { kind: "switch", doc: "Print JSON" },
} as const satisfies FlagSpecs;

/** Values of {@link CLIENT_FLAGS}. */
export interface ClientFlagValues {
  readonly server: string | undefined;
  readonly key: string | undefined;
  readonly ca?: string | undefined;
  readonly "data-dir": string | undefined;
}

/** Longest key that is read from a file, in characters. */
const KEY_LENGTH_MAX = 1024;

/** The server to talk to. */
export async function serverAccess(
  flags: ClientFlagValues,
  terminal: Terminal,
): Promise<ServerAccess> {
  const url = parseServer(flags.server ?? DEFAULT_SERVER);
  const trust = flags.ca === undefined ? {} : { ca: await readAuthorities(flags.ca) };
  if (flags.key !== undefined) return { url, key: checkKey(flags.key), ...trust };
  // The key of this host's server is nobody else's business.
  if (!isLocalServer(url)) return { url, key: null, ...trust };
  const dataDir = flags["data-dir"] ?? defaultDataDir(terminal);
  return { url, key: await readKeyFile(keyFile(dataDir)), ...trust };
}

/** Largest file of certificates, in bytes: those of a whole system have a few hundred KiB. */
const CA_BYTES_MAX = 4 * 1024 * 1024;

async function readAuthorities(path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch(() => "");
  if (text.length <= CA_BYTES_MAX && text.includes("-----BEGIN CERTIFICATE-----")) return text;
  throw usageError(`Cannot use certificates "${path}": expected a readable PEM file`);
}

function checkKey(text: string): string {
  // What fetch would refuse in a header, with an error that shows the value.
  if (/^[\x21-\x7e]+$/.test(text)) return text;
  throw usageError("Cannot use the API key: it may hold only visible ASCII characters");
}

async function readKeyFile(path: string): Promise<string | null> {
  try {
    const text = (await readFile(path, "utf8")).trim();
    return text === "" || text.length > KEY_LENGTH_MAX ? null : checkKey(text);
  } catch (error) {
    if (CprgError.is(error)) throw error;
    // None was made here, or it is another user's: the server will say that a key is missing.
    return null;
  }
}

/** A job's id as it was typed. */
export function parseJobId(text: string | undefined): string {
  return parseRunId(text, { what: "job", list: "cprg jobs" });
}

/** A task's id as it was typed. */
export function parseTaskId(text: string | undefined): string {
  return parseRunId(text, { what: "task", list: "cprg tasks list" });
}

function parseRunId(
  text: string | undefined,
  { what, list }: { readonly what: string; readonly list: string },
): string {
  const id = text?.toLowerCase() ?? "";
  if (isId(id)) return id;
  throw usageError(
    `Cannot use ${what} "${text ?? ""}": expected an id such as 0197a3f0-…`,
    `"${list}" lists them`,
  );
}
