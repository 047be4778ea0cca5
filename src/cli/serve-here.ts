/** `cprg serve`: opens everything in order, waits for a signal, closes everything in reverse. */

import { dirname, join } from "node:path";
import { systemClock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import { SecretSet } from "../core/secrets.ts";
import { type RunningServer, startServer } from "../http/serve.ts";
import { Retention, type RetentionOptions } from "../jobs/retention.ts";
import { JobService } from "../jobs/service.ts";
import { Feed } from "../record/feed.ts";
import type { LocalEngine } from "../sandbox/engine.ts";
import type { EngineStatus } from "../sandbox/engine-contract.ts";
import {
  fullPrivileges,
  reducePrivileges,
  type ServerPrivileges,
} from "../sandbox/reduce-privileges.ts";
import { SandboxService } from "../sandboxes/service.ts";
import { openArtifacts } from "../store/artifact-files.ts";
import { openStore } from "../store/open.ts";
import { openSigningKey } from "../store/signing-key.ts";
import { type ConfigInput, type LoadedConfig, loadConfig } from "./config.ts";
import type { Settings } from "./config-table.ts";
import { openDataDirectory } from "./data-directory.ts";
import { openEngine } from "./engine.ts";
import { EXIT } from "./exit-code.ts";
import { type JsonLog, jsonLog } from "./log-json.ts";
import { takeSignals } from "./run-stop.ts";
import { announce } from "./serve-announce.ts";
import { checkExposure, printSettings, type ServerKeys, serverKeys } from "./serve-config.ts";
import { serveTenancy } from "./serve-tenancy.ts";
import { type Address, formatAddress } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";
import { readTlsFiles, type TlsFiles } from "./tls-files.ts";
import { VERSION } from "./version.ts";

/** Serves until a signal asks it to stop; returns the exit code. */
export async function serveHere(flags: ConfigInput["flags"], terminal: Terminal): Promise<number> {
  const config = await loadConfig({ flags, env: terminal.env, uid: terminal.uid });
  const { settings, warnings } = config;
  const isCheck = flags["check"] === true;
  // First, because it may start the program anew: what was said or opened before would be lost.
  const privileges = isCheck ? fullPrivileges() : await keptPrivileges(settings, terminal);
  const secrets = new SecretSet();
  secrets.hold(config.secrets);
  const log = jsonLog(terminal.log, { spec: settings.log, now: Date.now, secrets });
  for (const message of warnings) log.scope("config").warn(message);
  checkExposure(config);
  const tls = await tlsFiles(settings, terminal);
  if (isCheck) {
    await printSettings(config, { json: flags["json"] === true, terminal });
    return EXIT.ok;
  }
  const asked = Promise.withResolvers<void>();
  const hurried = Promise.withResolvers<void>();
  using _signals = takeSignals(terminal, { cancel: asked.resolve, kill: hurried.resolve });
  await using stack = new AsyncDisposableStack();
  const { isReduced, capabilities } = privileges;
  log.scope("serve").info("privileges", { reduced: isReduced, capabilities });
  const parts = await openParts(config, {
    log,
    stack,
    hurried: hurried.promise,
    privileges,
    tls,
    secrets,
  });
  // A closed standard output does not stop a server.
  await announce({ ...parts, terminal }).catch(() => undefined);
  const failure = await Promise.race([asked.promise.then(() => null), parts.storeFailed]);
  if (failure !== null) {
    await parts.stop(0);
    throw failure;
  }
  log.scope("serve").info("stopping", { grace_seconds: settings.stopGraceSeconds });
  void hurried.promise.then(async () => await parts.stop(0));
  await parts.stop(settings.stopGraceSeconds * 1000);
  return EXIT.ok;
}

/** What runs. */
export interface ServerParts {
  readonly keys: ServerKeys;
  readonly engine: LocalEngine;
  readonly service: JobService;
  readonly server: RunningServer;
  /** Ends jobs and sandboxes, with a grace, and takes no more. */
  stop(graceMs: number): Promise<void>;
  /** Resolves when nothing can be stored any more. */
  readonly storeFailed: Promise<CprgError>;
}

interface OpenOptions {
  readonly log: JsonLog;
  /** Closes what was opened, in reverse. */
  readonly stack: AsyncDisposableStack;
  /** Resolves when nobody wants to wait any more. */
  readonly hurried: Promise<void>;
  readonly privileges: ServerPrivileges;
  readonly tls: TlsFiles | null;
  readonly secrets: SecretSet;
}

/**
 * What the server goes on with. Without a sandbox nothing is given up: its programs are to have the
 * rights of this user, and less would only look like protection.
 */
async function keptPrivileges(settings: Settings, terminal: Terminal): Promise<ServerPrivileges> {
  const { sandbox, addr, cgroup, dataDir, runDir, db } = settings;
  if (process.platform !== "linux" || terminal.uid !== 0 || sandbox === "off") {
    return fullPrivileges();
  }
  return await reducePrivileges({
    port: addr.port,
    ...(cgroup === null ? {} : { cgroupParent: cgroup }),
    dataDir,
    directories: [dataDir, runDir, dirname(db)],
    env: terminal.env,
  });
}

function startRetention(
  { retentionHours, sweepIntervalSecs }: LoadedConfig["settings"],
  parts: Pick<RetentionOptions, "store" | "onSweep" | "onSwept" | "log">,
): Retention {
  const sweepIntervalMs = sweepIntervalSecs * 1000;
  const retention = new Retention({
    ...parts,
    retentionHours,
    sweepIntervalMs,
    clock: systemClock,
  });
  retention.start();
  return retention;
}

/** MiB of memory that a share of an engine's is. */
function shareOf({ capacity }: EngineStatus, percent: number): number {
  return Math.floor((capacity.memMb * percent) / 100);
}

async function openParts(config: LoadedConfig, options: OpenOptions): Promise<ServerParts> {
  const { settings } = config;
  const { log, stack, hurried, privileges, tls, secrets } = options;
  await openDataDirectory(settings.dataDir);
  const keys = await serverKeys(config);
  secrets.hold(keys.secrets);
  if (tls !== null) secrets.hold(tls.key.split("\n").filter((line) => !line.startsWith("-")));
  const signingKey = await openSigningKey(settings.dataDir);
  const store = await openStore({ path: settings.db, log: log.scope("store") });
  stack.defer(async () => await store.close());
  const tenancyLog = log.scope("tenancy");
  const tenants = await serveTenancy(config, { store, keys, signingKey, log: tenancyLog, stack });
  const engine = await openEngine(config, log, config.settings.pool);
  stack.defer(async () => await engine.close());
  const artifacts = await openArtifacts(join(settings.dataDir, "artifacts"), {
    log: log.scope("store"),
  });
  const feed = new Feed(store.events);
  const { instance } = engine;
  const shared = { store, feed, provider: engine, signingKey, instance };
  const sandboxes = new SandboxService({
    ...shared,
    secrets,
    log: log.scope("sandboxes"),
    tenantSandboxes: settings.tenantSandboxes,
    tenantMemMb: shareOf(engine.status(), settings.tenantSandboxPercent),
    tenantBytesMax: settings.tenantStoredMb * 1024 ** 2,
  });
  const service = new JobService({
    ...shared,
    artifacts,
    languages: engine.languages,
    secrets,
    log: log.scope("jobs"),
    slots: settings.jobSlots,
    tenantConcurrency: settings.tenantConcurrency,
    queueMax: settings.queueMax,
    queueTenantMax: settings.queueTenantMax,
    tenantBytesMax: settings.tenantStoredMb * 1024 ** 2,
  });
  // Before jobs of an earlier run start: they are not to be cut short by a port that is taken.
  checkFree(settings.addr);
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
  const server = await startServer({
    hostname: settings.addr.host,
    port: settings.addr.port,
    jobs: service,
    sandboxes,
    ...tenants,
    engine,
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
    },
  });
  stack.defer(async () => await Promise.race([server.stop(), hurried]));
  const stop = async (graceMs: number): Promise<void> => {
    await Promise.all([service.stop(graceMs), sandboxes.stop(graceMs)]);
  };
  return { keys, engine, service, server, stop, storeFailed: store.failed };
}

async function tlsFiles(settings: Settings, terminal: Terminal): Promise<TlsFiles | null> {
  const { tlsCert: certPath, tlsKey: keyPath } = settings;
  return await readTlsFiles({ certPath, keyPath, uid: terminal.uid, now: Date.now() });
}

/** @throws CprgError when an address cannot be listened on */
function checkFree(address: Address): void {
  if (address.port === 0) return;
  try {
    const socket = { data: () => undefined };
    Bun.listen({ hostname: address.host, port: address.port, socket }).stop(true);
  } catch (error) {
    throw addressTaken(address, error);
  }
}

function addressTaken(address: Address, cause: unknown): CprgError {
  const { code } = cause as NodeJS.ErrnoException;
  const state = code === "EADDRINUSE" ? "another program listens there" : code;
  const message = `Cannot listen on "${formatAddress(address)}": ${state}`;
  const hint = "Choose another address with --addr or CPRG_ADDR";
  return new CprgError("failed_precondition", message, { hint, cause });
}
