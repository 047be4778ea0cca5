/** What `cprg serve` makes of its settings before it opens anything: keys, refusals, `--check`. */

import { existsSync } from "node:fs";
import type { CprgError } from "../core/errors.ts";
import { KeyRing } from "../tenancy/key-ring.ts";
import { DEFAULT_TENANT, hashKey, type KeyEntry } from "../tenancy/keys.ts";
import { configError, type LoadedConfig, shownSettings } from "./config.ts";
import { tomlKey } from "./config-table.ts";
import { openKeyFile } from "./key-file.ts";
import { jsonText, paintFor, printable, table } from "./output.ts";
import { keyFile } from "./paths.ts";
import { formatAddress, isLoopback } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";

/** The keys of a server, and the one that was made just now. */
export interface ServerKeys {
  readonly ring: KeyRing;
  /** To be shown once. */
  readonly madeKey: string | null;
  /** The key of the data directory, where it is in use: no log may show it. */
  readonly secrets: readonly string[];
}

/**
 * Refuses settings under which anybody could run programs here, or programs of others could do what
 * this user can: no key or no sandbox, in production or where others can reach the server.
 *
 * @throws CprgError `failed_precondition`
 */
export function checkExposure(config: LoadedConfig): void {
  const { settings } = config;
  if (!isExposed(config)) return;
  // A database may hold keys: they are counted when it is open.
  if (!existsSync(settings.db)) checkKeysExist(config, 0);
  if (settings.sandbox === "off") {
    const isProduction = settings.env === "production";
    const way = isProduction ? "" : ", or listen on a loopback address such as 127.0.0.1:7300";
    const hint = `Remove CPRG_SANDBOX=off or --sandbox off${way}`;
    throw exposed(config, "the sandbox is off", hint);
  }
}

/**
 * Refuses to start without any key where others can reach the server, or in production.
 *
 * @param stored keys of the database that hold
 * @throws CprgError `failed_precondition`
 */
export function checkKeysExist(config: LoadedConfig, stored: number): void {
  const { settings, keys } = config;
  const configured = settings.apiKeys.length + settings.adminKeys.length + keys.length;
  if (!isExposed(config) || configured + stored > 0) return;
  const hint =
    'Set CPRG_API_KEYS, for example to $(openssl rand -hex 16), or make one with "cprg key create"';
  throw exposed(config, "no key is set", hint);
}

function isExposed({ settings }: LoadedConfig): boolean {
  return settings.env === "production" || !isLoopback(settings.addr);
}

function exposed({ settings }: LoadedConfig, state: string, hint: string): CprgError {
  const message =
    settings.env === "production"
      ? `Cannot start in production: ${state}`
      : `Cannot listen on "${formatAddress(settings.addr)}": ${state}, and others can reach it`;
  return configError(message, hint);
}

/**
 * The keys that were configured.
 *
 * @throws CprgError `invalid_argument` when one is given twice
 */
export function configuredKeys({ settings, keys }: LoadedConfig): KeyRing {
  return new KeyRing([...settings.apiKeys, ...settings.adminKeys, ...keys]);
}

/**
 * The keys that were configured, else the one of the data directory; where others can reach the
 * server, none that nobody asked for.
 */
export async function serverKeys(config: LoadedConfig): Promise<ServerKeys> {
  const { settings } = config;
  const ring = configuredKeys(config);
  if (ring.size > 0 || isExposed(config)) return { ring, madeKey: null, secrets: [] };
  const own = await openKeyFile(keyFile(settings.dataDir));
  const entry: KeyEntry = { tenant: DEFAULT_TENANT, role: "admin", hash: hashKey(own.key) };
  return {
    ring: new KeyRing([entry]),
    madeKey: own.isNew ? own.key : null,
    secrets: [own.key],
  };
}

/** `serve --check`. @throws CprgError for keys that a server would not start with */
export async function printSettings(
  config: LoadedConfig,
  options: { readonly json: boolean; readonly terminal: Terminal },
): Promise<void> {
  const { json, terminal } = options;
  configuredKeys(config);
  const shown = shownSettings(config);
  if (json) {
    const entries = shown.map(({ name, value, source }) => [tomlKey(name), { value, source }]);
    await terminal.stdout.write(jsonText(Object.fromEntries(entries)));
    return;
  }
  const rows = shown.map(({ name, value, source }) => [tomlKey(name), source, valueText(value)]);
  const paint = paintFor(terminal.stdout, terminal.env);
  await terminal.stdout.write(table(["SETTING", "FROM", "VALUE"], rows, paint));
}

function valueText(value: unknown): string {
  if (value === null) return "-";
  if (typeof value === "object" && "port" in value && "host" in value) {
    return formatAddress(value as { host: string; port: number });
  }
  return typeof value === "string" ? printable(value) : JSON.stringify(value);
}
