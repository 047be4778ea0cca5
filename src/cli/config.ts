/**
 * The server's effective settings: flags over environment over one TOML file over defaults. A flag
 * or key that is not in the table refuses to start; an unknown `CPRG_` variable is a warning,
 * because the environment belongs to others too.
 */

import { CprgError } from "../core/errors.ts";
import type { KeyEntry } from "../tenancy/keys.ts";
import type { FlagSpec, FlagSpecs } from "./command.ts";
import { readConfigFile } from "./config-file.ts";
import { fileKeys } from "./config-keys.ts";
import {
  envName,
  flagName,
  SETTING_NAMES,
  SETTINGS,
  type Setting,
  type SettingHost,
  type SettingName,
  type Settings,
  tomlKey,
} from "./config-table.ts";
import { splitList } from "./flags.ts";
import { defaultDataDir, type Whose } from "./paths.ts";
import type { RawSetting } from "./settings-parse.ts";
import { nearest } from "./suggest.ts";

/** Where a value came from. */
export type SettingSource = "flag" | "environment" | "file" | "default";

/** Settings, where each came from, and what is odd. */
export interface LoadedConfig {
  readonly settings: Settings;
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** `[[keys]]` of the file. */
  readonly keys: readonly KeyEntry[];
  readonly warnings: readonly string[];
  /** Texts that no log may show. */
  readonly secrets: readonly string[];
}

/** Variables that are no settings: of client commands, of the file, and of the test suites. */
const OTHER_VARIABLES = [
  "CPRG_CONFIG",
  "CPRG_SERVER",
  "CPRG_KEY",
  "CPRG_CA",
  ...["CONNECT", "TOKEN", "TOKEN_FILE", "ROOT", "LABELS", "NAME", "ONCE", "TLS", "TLS_CA"].map(
    worker,
  ),
  ...[
    "TLS_CERT",
    "TLS_KEY",
    "STATE_DIR",
    "MAX_READ_BYTES",
    "PASS_ENV",
    "ISOLATE",
    "SLOTS",
    "ATTEMPTS",
    "PLAIN",
    "LIMITS",
  ].map(worker),
];

function worker(name: string): string {
  return `CPRG_WORKER_${name}`;
}

/** Flags of these settings, and `--config`. */
export function settingFlags(names: readonly SettingName[] = SETTING_NAMES): FlagSpecs {
  const flags: Record<string, FlagSpec> = {
    config: {
      kind: "text",
      value: "FILE",
      env: "CPRG_CONFIG",
      doc: "TOML file with settings; flags and variables win over it",
    },
  };
  for (const name of names) {
    const flag = flagName(name);
    if (flag !== null) flags[flag] = settingFlag(name);
  }
  return flags;
}

function settingFlag(name: SettingName): FlagSpec {
  const { kind, value, doc, offDoc = doc }: Setting<unknown> = SETTINGS[name];
  const shared = { env: envName(name), isSetting: true };
  if (kind === "switch") return { kind: "switch", ...shared, doc: offDoc };
  const isList = kind === "list" || kind === "limits";
  return { kind: isList ? "list" : "text", value, ...shared, doc };
}

/** What settings are read from. */
export interface ConfigInput extends Whose {
  /** Values of the flags of {@link settingFlags} that were given on the command line. */
  readonly flags: Readonly<Record<string, boolean | string | undefined | readonly string[]>>;
}

/**
 * Reads and checks all settings.
 *
 * @throws CprgError naming the flag, variable or key at fault
 */
export async function loadConfig(input: ConfigInput): Promise<LoadedConfig> {
  const path = input.flags["config"];
  const file = typeof path === "string" ? await readConfigFile(path) : { settings: {}, keys: [] };
  const found = new Map(
    SETTING_NAMES.map((name) => [name, findRaw(name, input, file.settings)] as const),
  );
  const resolveOne = (name: SettingName, host: SettingHost): unknown => {
    const spec: Setting<unknown> = SETTINGS[name];
    const raw = found.get(name);
    return raw === undefined ? spec.fallback(host) : spec.parse(raw.value, raw.where);
  };
  const host = { uid: input.uid, env: input.env, dataDir: defaultDataDir(input) };
  const dataDir = String(resolveOne("dataDir", host));
  const entries = SETTING_NAMES.map((name) => [name, resolveOne(name, { ...host, dataDir })]);
  const sources = SETTING_NAMES.map((name) => [name, found.get(name)?.source ?? "default"]);
  return {
    settings: Object.freeze(Object.fromEntries(entries)) as Settings,
    sources: Object.fromEntries(sources) as LoadedConfig["sources"],
    keys: fileKeys(file.keys),
    warnings: unknownVariables(input.env),
    secrets: SETTING_NAMES.flatMap((name) => secretTexts(SETTINGS[name], found.get(name)?.value)),
  };
}

/** The values of a setting that is one, and their parts: `tenant:key` hides the key alone too. */
function secretTexts({ isSecret }: Setting<unknown>, raw: RawSetting | undefined): string[] {
  if (isSecret !== true || raw === undefined) return [];
  const words = typeof raw === "string" ? splitList(raw) : raw.flatMap((part) => splitList(part));
  return words.flatMap((word) => [word, word.slice(word.indexOf(":") + 1)]);
}

interface FoundRaw {
  readonly value: RawSetting;
  /** How to name it in an error: `--addr`, `CPRG_ADDR` or `addr` of the file. */
  readonly where: string;
  readonly source: SettingSource;
}

function findRaw(
  name: SettingName,
  input: ConfigInput,
  file: Readonly<Record<string, RawSetting>>,
): FoundRaw | undefined {
  const flag = flagName(name);
  const spec: Setting<unknown> = SETTINGS[name];
  const given = flag === null ? undefined : input.flags[flag];
  if (given === true) {
    return { value: String(spec.isOptIn === true), where: `--${flag}`, source: "flag" };
  }
  if (typeof given === "string") return { value: given, where: `--${flag}`, source: "flag" };
  if (Array.isArray(given) && given.length > 0) {
    return { value: given, where: `--${flag}`, source: "flag" };
  }
  for (const variable of [envName(name), spec.alsoEnv]) {
    const value = variable === undefined ? undefined : input.env[variable];
    if (variable === undefined || value === undefined || value === "") continue;
    const isList = spec.kind === "list" || spec.kind === "limits";
    return { value: isList ? splitList(value) : value, where: variable, source: "environment" };
  }
  const written = file[name];
  return written === undefined
    ? undefined
    : { value: written, where: tomlKey(name), source: "file" };
}

/** Every variable that is read somewhere, for the check and for the documentation. */
export function knownVariables(): readonly string[] {
  const settings = SETTING_NAMES.flatMap((name) => {
    const { alsoEnv }: Setting<unknown> = SETTINGS[name];
    return alsoEnv === undefined ? [envName(name)] : [envName(name), alsoEnv];
  });
  return [...settings, ...OTHER_VARIABLES];
}

function unknownVariables(env: ConfigInput["env"]): string[] {
  const known = knownVariables();
  return Object.keys(env)
    .filter((name) => name.startsWith("CPRG_") && !known.includes(name))
    .map((name) => {
      const near = nearest(name, known);
      return `${name} is no variable of cprg${near === null ? "" : `; did you mean ${near}?`}`;
    });
}

/** One line of `serve --check`. */
export interface ShownSetting {
  readonly name: SettingName;
  readonly value: unknown;
  readonly source: SettingSource;
}

/** Effective settings for people to read: no secret, only how many there are. */
export function shownSettings(config: LoadedConfig): readonly ShownSetting[] {
  return SETTING_NAMES.map((name) => {
    const { isSecret }: Setting<unknown> = SETTINGS[name];
    const value: unknown = config.settings[name];
    const count = Array.isArray(value) ? value.length : Number(value !== null);
    const shown = isSecret ? `${count} (not shown)` : value;
    return { name, value: shown, source: config.sources[name] };
  });
}

/** A contradiction between settings. */
export function configError(message: string, hint: string): CprgError {
  return new CprgError("failed_precondition", message, { reason: "CONFIG", hint });
}
