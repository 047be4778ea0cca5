/** The parts of a server, opened in order and closed in reverse. */

import { dirname, join } from "node:path";
import type { ListenerTls } from "../bridge/listener.ts";
import { systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { TaskCounts } from "../http/routes/metrics.ts";
import { type RunningServer, startServer } from "../http/serve.ts";
import { Retention, type RetentionOptions } from "../jobs/retention.ts";
import { JobService, type JobServiceOptions } from "../jobs/service.ts";
import { Feed } from "../record/feed.ts";
import {
  fullPrivileges,
  reducePrivileges,
  type ServerPrivileges,
} from "../sandbox/reduce-privileges.ts";
import { SandboxService, type SandboxServiceOptions } from "../sandboxes/service.ts";
import { openArtifacts } from "../store/artifact-files.ts";
import type { ArtifactStore } from "../store/artifacts.ts";
import { type FileStore, openStore } from "../store/open.ts";
import { openSigningKey } from "../store/signing-key.ts";
import type { LoadedConfig } from "./config.ts";
import type { Settings } from "./config-table.ts";
import { openDataDirectory } from "./data-directory.ts";
import { openEngine } from "./engine.ts";
import type { JsonLog } from "./log-json.ts";
import { noEngine, type ServerEngine } from "./no-engine.ts";
import {
  BRIDGE_ADDRESS_DEFAULT,
  type Bridge,
  type BridgeOptions,
  openBridge,
} from "./serve-bridge.ts";
import { type ServerKeys, serverKeys } from "./serve-config.ts";
import { serveTenancy } from "./serve-tenancy.ts";
import { type Address, formatAddress } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";
import type { TlsFiles } from "./tls-files.ts";
import { VERSION } from "./version.ts";

/** Which server: one that runs programs on this host, or one that has workers for that alone. */
export type ServerKind = "serve" | "control-plane";

/** What runs. */
export interface ServerParts {
  readonly keys: ServerKeys;
  readonly engine: ServerEngine;
  readonly server: RunningServer;
  /** What there is to say of the bridge. */
  readonly bridgeLines: readonly string[];
  /** Ends jobs, sandboxes and tasks, with a grace, and takes no more. */
  stop(graceMs: number): Promise<void>;
  /** Resolves when nothing can be stored any more. */
  readonly storeFailed: Promise<CprgError>;
}

/** What they are opened with. */
export interface OpenOptions {
  readonly kind: ServerKind;
  readonly log: JsonLog;
  /** Closes what was opened, in reverse. */
  readonly stack: AsyncDisposableStack;
  /** Resolves when nobody wants to wait any more. */
  readonly hurried: Promise<void>;
  readonly privileges: ServerPrivileges;
  readonly tls: TlsFiles | null;
  readonly bridgeTls: ListenerTls | null;
  readonly secrets: SecretSet;
}

/**
 * What the server goes on with. Without a sandbox nothing is given up: its programs are to have the
 * rights of this user, and less would only look like protection.
 */
export async function keptPrivileges(
  settings: Settings,
  kind: ServerKind,
  terminal: Terminal,
): Promise<ServerPrivileges> {
  const { sandbox, addr, cgroup, dataDir, runDir, db } = settings;
  const hasSandboxes = kind === "serve" && sandbox !== "off";
  if (process.platform !== "linux" || terminal.uid !== 0 || !hasSandboxes) return fullPrivileges();
  const ports = [addr.port, settings.bridgeAddr?.port ?? 0].filter((port) => port !== 0);
  return await reducePrivileges({
    // The lowest decides whether the right to low ports is kept.
    port: ports.length === 0 ? 0 : Math.min(...ports),
    ...(cgroup === null ? {} : { cgroupParent: cgroup }),
    dataDir,
    directories: [dataDir, runDir, dirname(db)],
    env: terminal.env,
  });
}

/** Opens everything. @throws CprgError naming what cannot be opened */
export async function openParts(config: LoadedConfig, options: OpenOptions): Promise<ServerParts> {
  const { settings } = config;
  const { kind, log, stack, hurried, privileges, tls, secrets } = options;
  await openDataDirectory(settings.dataDir);
  const keys = await serverKeys(config);
  secrets.hold(keys.secrets);
  if (tls !== null) holdPem(secrets, tls.key);
  const signingKey = await openSigningKey(settings.dataDir, { log: log.scope("store") });
  const store = await openStore({ path: settings.db, log: log.scope("store") });
  stack.defer(async () => await store.close());
  const tenancyLog = log.scope("tenancy");
  const tenants = await serveTenancy(config, { store, keys, signingKey, log: tenancyLog, stack });
  const hasEngine = kind === "serve";
  const engine: ServerEngine = hasEngine
    ? await openEngine(config, log, { pool: config.settings.pool, isProven: true })
    : noEngine();
  stack.defer(async () => await engine.close());
  const artifacts = await openArtifacts(join(settings.dataDir, "artifacts"), {
    log: log.scope("store"),
  });
  const feed = new Feed(store.events);
  // Before jobs of an earlier run start: they are not to be cut short by a port that is taken.
  checkFree(settings.addr, "--addr or CPRG_ADDR");
  const bridgeAddress = settings.bridgeAddr ?? (hasEngine ? null : BRIDGE_ADDRESS_DEFAULT);
  const bridge = await openFreeBridge(settings, bridgeAddress, { ...options, store, feed });
  if (bridge !== null) stack.defer(async () => await bridge.plane.stop({ graceMs: 0 }));
  const { sandboxes, service } = services(settings, {
    shared: { store, feed, provider: engine, signingKey, instance: engine.instance },
    engine,
    artifacts,
    bridge,
    options,
  });
  stack.defer(async () => await service.stop(0));
  stack.defer(async () => await sandboxes.stop(0));
  log.scope("sandboxes").info("recovered", { ...(await sandboxes.start()) });
  const recovered = await service.start({ keepQueued: settings.recoverQueued });
  log.scope("jobs").info("recovered", { ...recovered });
  const retention = startRetention(settings, {
    store,
    onSweep: (before) => tenants.tenancy.registry.forgetEnded(before),
    onSwept: () => service.pruneArtifacts(),
    log: log.scope("retention"),
  });
  stack.defer(async () => await retention.stop());
  const bridgeLines = (await bridge?.listen()) ?? [];
  const server = await startServer({
    hostname: settings.addr.host,
    port: settings.addr.port,
    jobs: service,
    sandboxes,
    ...tenants,
    engine,
    hasEngine,
    ...(bridge === null ? {} : { tasks: bridge.tasks }),
    privileges,
    allowedHosts: settings.allowedHosts,
    ...(tls === null ? {} : { tls }),
    log: log.scope("http"),
    version: VERSION,
    ceilings: settings.ceilings,
    counts: {
      sandboxes: () => {
        const { sandboxes: open, pooled } = engine.status();
        return { open, pooled };
      },
      store: () => store.stats(),
      ...(bridge === null ? {} : { tasks: () => taskCounts(bridge) }),
    },
  });
  stack.defer(async () => await Promise.race([server.stop(), hurried]));
  const stop = async (graceMs: number): Promise<void> => {
    const leases = Promise.all([service.stop(graceMs), sandboxes.stop(graceMs)]);
    await Promise.all([leases, bridge?.plane.stop({ graceMs, leases })]);
  };
  return { keys, engine, server, bridgeLines, stop, storeFailed: store.failed };
}

interface ServiceParts {
  readonly shared: Pick<
    SandboxServiceOptions & JobServiceOptions,
    "store" | "feed" | "provider" | "signingKey" | "instance"
  >;
  readonly engine: ServerEngine;
  readonly artifacts: ArtifactStore;
  readonly bridge: Bridge | null;
  readonly options: OpenOptions;
}

/**
 * Jobs and sandboxes, of this host and of workers, not started yet. Where nothing runs on this host,
 * those that do not say where they are to run go to any worker.
 */
function services(
  settings: Settings,
  { shared, engine, artifacts, bridge, options }: ServiceParts,
) {
  const { kind, log, secrets } = options;
  const placed = {
    ...(bridge === null ? {} : { pool: bridge.plane.pool }),
    ...(kind === "serve" ? {} : { placement: { labels: {} } }),
  };
  const tenantBytesMax = settings.tenantStoredMb * 1024 ** 2;
  const sandboxes = new SandboxService({
    ...shared,
    ...placed,
    secrets,
    log: log.scope("sandboxes"),
    tenantSandboxes: settings.tenantSandboxes,
    tenantMemMb: shareOf(engine, settings.tenantSandboxPercent),
    tenantBytesMax,
  });
  const service = new JobService({
    ...shared,
    ...placed,
    artifacts,
    languages: engine.languages,
    secrets,
    log: log.scope("jobs"),
    slots: kind === "serve" ? settings.jobSlots : 0,
    tenantConcurrency: settings.tenantConcurrency,
    queueMax: settings.queueMax,
    queueTenantMax: settings.queueTenantMax,
    tenantBytesMax,
  });
  return { sandboxes, service };
}

function taskCounts({ plane }: Bridge): TaskCounts {
  return { ...plane.counts, staleRefused: plane.staleEpochRefused };
}

async function openFreeBridge(
  settings: Settings,
  address: Address | null,
  options: Omit<BridgeOptions, "tls"> & Pick<OpenOptions, "bridgeTls">,
): Promise<Bridge | null> {
  if (address === null) return null;
  const { store, feed, log, secrets, bridgeTls: tls } = options;
  checkFree(address, "--bridge-addr or CPRG_BRIDGE_ADDR");
  if (tls !== null) holdPem(secrets, tls.key);
  return await openBridge(settings, address, { store, feed, log, secrets, tls });
}

/** No log may show a line of a private key. */
function holdPem(secrets: SecretSet, pem: string): void {
  secrets.hold(pem.split("\n").filter((line) => !line.startsWith("-")));
}

function startRetention(
  { retentionHours, sweepIntervalSecs }: LoadedConfig["settings"],
  parts: Pick<RetentionOptions, "onSweep" | "onSwept" | "log"> & { readonly store: FileStore },
): Retention {
  const sweepIntervalMs = sweepIntervalSecs * 1000;
  const retention = new Retention({
    ...parts,
    retentionHours,
    sweepIntervalMs,
    clock: systemClock,
  });
  parts.store.onDiskFull(() => retention.hurry());
  retention.start();
  return retention;
}

/** MiB of memory that a share of an engine's is. */
function shareOf(engine: ServerEngine, percent: number): number {
  return Math.floor((engine.status().capacity.memMb * percent) / 100);
}

/** @throws CprgError when an address cannot be listened on */
function checkFree(address: Address, setting: string): void {
  if (address.port === 0) return;
  try {
    const socket = { data: () => undefined };
    Bun.listen({ hostname: address.host, port: address.port, socket }).stop(true);
  } catch (error) {
    throw addressTaken(address, setting, error);
  }
}

function addressTaken(address: Address, setting: string, cause: unknown): CprgError {
  const { code } = cause as NodeJS.ErrnoException;
  const state = code === "EADDRINUSE" ? "another program listens there" : code;
  const message = `Cannot listen on "${formatAddress(address)}": ${state}`;
  const hint = `Choose another address with ${setting}`;
  return new CprgError("failed_precondition", message, { hint, cause });
}
