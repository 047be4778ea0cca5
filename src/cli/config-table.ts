/**
 * The one table of the server's settings. Names of flag, variable and TOML key are derived from a
 * setting's name, so that they cannot differ: `jobSlots` is `--job-slots`, `CPRG_JOB_SLOTS` and
 * `job_slots`. Help, `serve --check` and the documentation come from here too.
 */

import { join } from "node:path";
import { AGENT_BUDGET_DEFAULT, AGENT_BUDGET_MAX } from "../control-plane/runners/agent-budget.ts";
import { CEILING_LIMITS } from "../core/limits.ts";
import { RATE_PER_MIN_DEFAULT, RATE_PER_MIN_MAX } from "../tenancy/rate-windows.ts";
import { defaultRunDir, type Whose } from "./paths.ts";
import {
  type Address,
  parseAddress,
  parseBearer,
  parseBinds,
  parseCeilings,
  parseChoice,
  parseHosts,
  parseInteger,
  parseKeys,
  parseLayers,
  parseLogSpec,
  parseModel,
  parsePath,
  parseTruth,
  parseWord,
  parseWords,
  type RawSetting,
} from "./settings-parse.ts";

/** How a setting is written: what TOML type it has and whether commas separate values. */
export type SettingKind = "text" | "integer" | "switch" | "list" | "limits";

/** What a default may depend on. */
export interface SettingHost extends Whose {
  /** The effective data directory. */
  readonly dataDir: string;
}

/** One setting. */
export interface Setting<T> {
  readonly kind: SettingKind;
  /** What help shows for the value. */
  readonly value: string;
  readonly doc: string;
  /** Of a switch: what its flag does, which turns it off. */
  readonly offDoc?: string;
  /** Never shown, and no flag, because command lines are public on the host. */
  readonly isSecret?: boolean;
  /** A secret that has a flag all the same. */
  readonly hasFlag?: boolean;
  /** A switch that is off by default; its flag turns it on. */
  readonly isOptIn?: boolean;
  /** A second variable that is read where the first is not set. */
  readonly alsoEnv?: string;
  fallback(host: SettingHost): T;
  /** @throws CprgError naming `where` it was written */
  parse(raw: RawSetting, where: string): T;
}

function setting<T>(spec: Setting<T>): Setting<T> {
  return spec;
}

/** Every setting. */
export const SETTINGS = {
  addr: setting({
    kind: "text",
    value: "HOST:PORT",
    doc: "Address of the HTTP API; port 0 takes a free one",
    fallback: () => ({ host: "127.0.0.1", port: 7300 }),
    parse: parseAddress,
  }),
  allowedHosts: setting({
    kind: "list",
    value: "NAME,…",
    doc: "Host names by which clients may call the server, beside its addresses and localhost",
    fallback: () => [],
    parse: parseHosts,
  }),
  tlsCert: setting({
    kind: "text",
    value: "FILE",
    doc: "Certificate chain in PEM: the server speaks HTTPS",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  tlsKey: setting({
    kind: "text",
    value: "FILE",
    doc: "Private key of the certificate in PEM, which others may not read",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  bridgeAddr: setting({
    kind: "text",
    value: "HOST:PORT",
    doc: "Address for workers, such as 127.0.0.1:7600; without it cprg serve takes none, and cprg control-plane listens there",
    fallback: () => null,
    parse: (raw, where): Address | null => parseAddress(raw, where),
  }),
  bridgeToken: setting({
    kind: "text",
    value: "TOKEN",
    doc: "One bearer for all workers, beside minted tokens; others on this host can read a flag: rather set the variable",
    isSecret: true,
    hasFlag: true,
    fallback: () => null,
    parse: (raw, where): string | null => parseBearer(raw, where),
  }),
  allowSharedToken: setting({
    kind: "switch",
    value: "BOOL",
    isOptIn: true,
    doc: "Take the one bearer on an address that other hosts can reach too",
    fallback: () => false,
    parse: parseTruth,
  }),
  bridgeTlsCert: setting({
    kind: "text",
    value: "FILE",
    doc: "Certificate chain in PEM that workers are shown: the bridge speaks TLS",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  bridgeTlsKey: setting({
    kind: "text",
    value: "FILE",
    doc: "Private key of that certificate in PEM, which others may not read",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  bridgeTlsClientCa: setting({
    kind: "text",
    value: "FILE",
    doc: "Certificates in PEM: each worker must show one that one of these signed",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  tenantClaims: setting({
    kind: "integer",
    value: "N",
    doc: "Workers that tasks of one tenant may have at once",
    fallback: () => 100,
    parse: parseInteger({ least: 1, most: 10_000 }),
  }),
  agentModel: setting({
    kind: "text",
    value: "NAME",
    doc: "Turns on the agent runner, for every key: openai:MODEL, or compatible:MODEL with a base URL",
    fallback: () => null,
    parse: parseModel,
  }),
  agentBaseUrl: setting({
    kind: "text",
    value: "URL",
    doc: "Where the model is: a server that speaks OpenAI's protocol",
    fallback: () => null,
    parse: (raw, where): string | null => parseWord(raw, where),
  }),
  agentKey: setting({
    kind: "text",
    value: "KEY",
    doc: "Key of the model's server; it stays in this process",
    isSecret: true,
    fallback: () => null,
    parse: (raw, where): string | null => parseWord(raw, where),
  }),
  agentSteps: setting({
    kind: "integer",
    value: "N",
    doc: "Answers of the model that one task may take",
    fallback: () => AGENT_BUDGET_DEFAULT.steps,
    parse: parseInteger({ least: 1, most: AGENT_BUDGET_MAX.steps }),
  }),
  agentWallSeconds: setting({
    kind: "integer",
    value: "SECONDS",
    doc: "How long the agent of one task may work",
    fallback: () => AGENT_BUDGET_DEFAULT.wallSeconds,
    parse: parseInteger({ least: 1, most: AGENT_BUDGET_MAX.wallSeconds }),
  }),
  agentTokens: setting({
    kind: "integer",
    value: "N",
    doc: "Tokens that the agent of one task may spend",
    fallback: () => AGENT_BUDGET_DEFAULT.tokens,
    parse: parseInteger({ least: 1, most: AGENT_BUDGET_MAX.tokens }),
  }),
  dataDir: setting({
    kind: "text",
    value: "DIR",
    doc: "Database, signing key and API key; default /var/lib/cprg, or $XDG_DATA_HOME/cprg",
    fallback: ({ dataDir }) => dataDir,
    parse: parsePath,
  }),
  db: setting({
    kind: "text",
    value: "FILE",
    doc: "Database; default cprg.db in the data directory",
    fallback: ({ dataDir }) => join(dataDir, "cprg.db"),
    parse: parsePath,
  }),
  runDir: setting({
    kind: "text",
    value: "DIR",
    doc: "Locks and what lives as long as the server; default /run/cprg, or $XDG_RUNTIME_DIR/cprg, or /tmp/cprg-UID",
    fallback: (host) => defaultRunDir(host),
    parse: parsePath,
  }),
  jobSlots: setting({
    kind: "integer",
    value: "N",
    doc: "Jobs that run at once",
    alsoEnv: "CPRG_WORKERS",
    fallback: () => 4,
    parse: parseInteger({ least: 1, most: 1024 }),
  }),
  tenantConcurrency: setting({
    kind: "integer",
    value: "N",
    doc: "Jobs that run at once for one tenant",
    fallback: () => 2,
    parse: parseInteger({ least: 1, most: 1024 }),
  }),
  tenantSandboxes: setting({
    kind: "integer",
    value: "N",
    doc: "Sandboxes that one tenant may hold open",
    fallback: () => 8,
    parse: parseInteger({ least: 0, most: 1024 }),
  }),
  tenantSandboxPercent: setting({
    kind: "integer",
    value: "N",
    doc: "Percent of the memory for sandboxes that those which one tenant holds open may have",
    fallback: () => 50,
    parse: parseInteger({ least: 1, most: 100 }),
  }),
  queueMax: setting({
    kind: "integer",
    value: "N",
    doc: "Jobs that may wait, of all tenants together",
    fallback: () => 1000,
    parse: parseInteger({ least: 1, most: 1_000_000 }),
  }),
  queueTenantMax: setting({
    kind: "integer",
    value: "N",
    doc: "Jobs of one tenant that may wait",
    fallback: () => 500,
    parse: parseInteger({ least: 1, most: 1_000_000 }),
  }),
  tenantStoredMb: setting({
    kind: "integer",
    value: "MB",
    doc: "MiB of logs and jobs that may be kept for one tenant; above it new jobs are refused",
    fallback: () => 10_240,
    parse: parseInteger({ least: 1, most: 1_000_000_000 }),
  }),
  ratePerMin: setting({
    kind: "integer",
    value: "N",
    doc: "Requests of one key in a minute, in fixed windows, where the key has no rate of its own",
    fallback: () => RATE_PER_MIN_DEFAULT,
    parse: parseInteger({ least: 1, most: RATE_PER_MIN_MAX }),
  }),
  pool: setting({
    kind: "integer",
    value: "N",
    doc: "Sandboxes that are kept built, so that a job need not wait for one; 0 keeps none",
    fallback: () => 4,
    parse: parseInteger({ least: 0, most: 64 }),
  }),
  recoverQueued: setting({
    kind: "switch",
    value: "BOOL",
    doc: "Run, after a restart, the jobs that were queued before it; else they end as interrupted",
    offDoc: "After a restart, end the jobs that were queued before it as interrupted",
    fallback: () => true,
    parse: parseTruth,
  }),
  stopGraceSeconds: setting({
    kind: "integer",
    value: "SECONDS",
    doc: "Time that running jobs are given when the server is asked to stop",
    fallback: () => 10,
    parse: parseInteger({ least: 0, most: 3600 }),
  }),
  retentionHours: setting({
    kind: "integer",
    value: "HOURS",
    doc: "How long jobs are kept after their end, with their events; 0 keeps them for ever",
    fallback: () => 168,
    parse: parseInteger({ least: 0, most: 876_000 }),
  }),
  sweepIntervalSecs: setting({
    kind: "integer",
    value: "SECONDS",
    doc: "Time between two looks for what is past its retention; at least 60",
    fallback: () => 3600,
    parse: parseInteger({ least: 60, most: 86_400 }),
  }),
  env: setting({
    kind: "text",
    value: "NAME",
    doc: "production (prod, release) refuses to start without a key or with a layer missing",
    fallback: () => "development" as const,
    parse: parseChoice({
      production: ["prod", "release"],
      development: ["dev", "test"],
    }),
  }),
  sandbox: setting({
    kind: "text",
    value: "MODE",
    doc: "auto, ns (as root), rootless, or off: programs run as this user with no sandbox at all",
    fallback: () => "auto" as const,
    parse: parseChoice({ auto: [], ns: [], rootless: [], off: [] }),
  }),
  allowMissing: setting({
    kind: "list",
    value: "LAYER,…",
    doc: "Layers that may be missing on this host: cgroup, identity; never in production",
    fallback: () => [],
    parse: parseLayers,
  }),
  seccomp: setting({
    kind: "text",
    value: "MODE",
    doc: "auto, or off: system calls are not filtered; never in production",
    fallback: () => "auto" as const,
    parse: parseChoice({ auto: ["on"], off: [] }),
  }),
  seccompAllow: setting({
    kind: "list",
    value: "CALL,…",
    doc: "System calls that every program may make besides those of its profile",
    fallback: () => [],
    parse: parseWords,
  }),
  seccompUnsafe: setting({
    kind: "switch",
    value: "BOOL",
    isOptIn: true,
    doc: "Let seccomp_allow name calls that lead out of a sandbox; never in production",
    fallback: () => false,
    parse: parseTruth,
  }),
  binds: setting({
    kind: "list",
    value: "DIR[:AS],…",
    doc: "Further host directories that every sandbox sees, read-only, at the same place or AS",
    fallback: () => [],
    parse: parseBinds,
  }),
  cgroup: setting({
    kind: "text",
    value: "PATH",
    doc: "Cgroup that holds all sandboxes; default: one beneath the server's own",
    fallback: () => null,
    parse: (raw, where): string | null => parsePath(raw, where),
  }),
  python: setting(interpreter("python3")),
  node: setting(interpreter("node")),
  bash: setting(interpreter("bash")),
  ceilings: setting({
    kind: "limits",
    value: "NAME=N,…",
    doc: "Highest limits that a job may ask for",
    fallback: () => CEILING_LIMITS,
    parse: parseCeilings,
  }),
  log: setting({
    kind: "text",
    value: "LEVELS",
    doc: "What is logged: debug, info, warn or error, and per part: info,http=debug",
    fallback: () => ({ level: "info" as const, byScope: {} }),
    parse: parseLogSpec,
  }),
  apiKeys: setting({
    kind: "list",
    value: "TENANT:KEY,…",
    doc: "Keys of tenants; a bare key is one of tenant default",
    isSecret: true,
    fallback: () => [],
    parse: parseKeys("tenant"),
  }),
  adminKeys: setting({
    kind: "list",
    value: "TENANT:KEY,…",
    doc: "Keys that may administer the server too",
    isSecret: true,
    fallback: () => [],
    parse: parseKeys("admin"),
  }),
} as const;

function interpreter(name: string): Setting<string | null> {
  return {
    kind: "text",
    value: "PATH",
    doc: `The ${name} of sandboxes; default: the first one that runs inside`,
    fallback: () => null,
    parse: (raw, where) => parsePath(raw, where),
  };
}

/** Name of a setting. */
export type SettingName = keyof typeof SETTINGS;

/** Effective settings. */
export type Settings = {
  readonly [K in SettingName]: ReturnType<(typeof SETTINGS)[K]["fallback"]>;
};

/** Names of all settings, in the table's order. */
export const SETTING_NAMES = Object.keys(SETTINGS) as readonly SettingName[];

/** `job_slots`. */
export function tomlKey(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** `CPRG_JOB_SLOTS`. */
export function envName(name: string): string {
  return `CPRG_${tomlKey(name).toUpperCase()}`;
}

/** `job-slots`; `no-recover-queued` for a switch that is on by default; null for secrets. */
export function flagName(name: SettingName): string | null {
  const spec: Setting<unknown> = SETTINGS[name];
  if (spec.isSecret && !spec.hasFlag) return null;
  const base = tomlKey(name).replaceAll("_", "-");
  return spec.kind === "switch" && !spec.isOptIn ? `no-${base}` : base;
}
