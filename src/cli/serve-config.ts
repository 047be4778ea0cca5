/** What `cprg serve` makes of its settings before it opens anything: keys, refusals, `--check`. */

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
export function checkExposure({ settings, keys }: LoadedConfig): void {
  const isProduction = settings.env === "production";
  if (!isProduction && isLoopback(settings.addr)) return;
  const refuse = (state: string, hint: string) => {
    const address = formatAddress(settings.addr);
    const message = isProduction
      ? `Cannot start in production: ${state}`
      : `Cannot listen on "${address}": ${state}, and others can reach it`;
    return configError(message, hint);
  };
  if (settings.apiKeys.length + settings.adminKeys.length + keys.length === 0) {
    throw refuse("no key is set", "Set CPRG_API_KEYS, for example to $(openssl rand -hex 16)");
  }
  if (settings.sandbox === "off") {
    const way = isProduction ? "" : ", or listen on a loopback address such as 127.0.0.1:7300";
    throw refuse("the sandbox is off", `Remove CPRG_SANDBOX=off or --sandbox off${way}`);
  }
}

/** The keys that were configured, else the one of the data directory. */
export async function serverKeys({ settings, keys }: LoadedConfig): Promise<ServerKeys> {
  const configured = [...settings.apiKeys, ...settings.adminKeys, ...keys];
  if (configured.length > 0) return { ring: new KeyRing(configured), madeKey: null, secrets: [] };
  const own = await openKeyFile(keyFile(settings.dataDir));
  const entry: KeyEntry = { tenant: DEFAULT_TENANT, role: "admin", hash: hashKey(own.key) };
  return {
    ring: new KeyRing([entry]),
    madeKey: own.isNew ? own.key : null,
    secrets: [own.key],
  };
}

/** `serve --check`. */
export async function printSettings(
  config: LoadedConfig,
  options: { readonly json: boolean; readonly terminal: Terminal },
): Promise<void> {
  const { json, terminal } = options;
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
