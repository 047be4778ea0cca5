/** `cprg serve`: opens everything in order, waits for a signal, closes everything in reverse. */

import { dirname } from "node:path";
import { CprgError } from "../core/errors.ts";
import { type RunningServer, startServer } from "../http/serve.ts";
import { Feed } from "../jobs/feed.ts";
import { JobService } from "../jobs/service.ts";
import type { LocalEngine } from "../sandbox/engine.ts";
import {
  fullPrivileges,
  reducePrivileges,
  type ServerPrivileges,
} from "../sandbox/reduce-privileges.ts";
import { openStore } from "../store/open.ts";
import { openSigningKey } from "../store/signing-key.ts";
import { type ConfigInput, type LoadedConfig, loadConfig } from "./config.ts";
import type { Settings } from "./config-table.ts";
import { openEngine } from "./engine.ts";
import { EXIT } from "./exit-code.ts";
import { type JsonLog, jsonLog } from "./log-json.ts";
import { takeSignals } from "./run-stop.ts";
import { announce } from "./serve-announce.ts";
import { checkExposure, printSettings, type ServerKeys, serverKeys } from "./serve-config.ts";
import { serveTenancy } from "./serve-tenancy.ts";
import { type Address, formatAddress } from "./settings-parse.ts";
import type { Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** Serves until a signal asks it to stop; returns the exit code. */
export async function serveHere(flags: ConfigInput["flags"], terminal: Terminal): Promise<number> {
  const config = await loadConfig({ flags, env: terminal.env, uid: terminal.uid });
  const { settings, warnings } = config;
  const isCheck = flags["check"] === true;
  // First, because it may start the program anew: what was said or opened before would be lost.
  const privileges = isCheck ? fullPrivileges() : await keptPrivileges(settings, terminal);
  const log = jsonLog(terminal.log, { spec: settings.log, now: Date.now });
  for (const message of warnings) log.scope("config").warn(message);
  checkExposure(config);
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
  const parts = await openParts(config, { log, stack, hurried: hurried.promise, privileges });
  // A closed standard output does not stop a server.
  await announce({ ...parts, terminal }).catch(() => undefined);
  const failure = await Promise.race([asked.promise.then(() => null), parts.storeFailed]);
  if (failure !== null) {
    await parts.service.stop(0);
    throw failure;
  }
  log.scope("serve").info("stopping", { grace_seconds: settings.stopGraceSeconds });
  void hurried.promise.then(async () => await parts.service.stop(0));
  await parts.service.stop(settings.stopGraceSeconds * 1000);
  return EXIT.ok;
}

/** What runs. */
export interface ServerParts {
  readonly keys: ServerKeys;
  readonly engine: LocalEngine;
  readonly service: JobService;
  readonly server: RunningServer;
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

async function openParts(config: LoadedConfig, options: OpenOptions): Promise<ServerParts> {
  const { settings } = config;
  const { log, stack, hurried, privileges } = options;
  const keys = await serverKeys(config);
  const signingKey = await openSigningKey(settings.dataDir);
  const store = await openStore({ path: settings.db, log: log.scope("store") });
  stack.defer(async () => await store.close());
  const tenancyLog = log.scope("tenancy");
  const tenants = await serveTenancy(config, { store, keys, signingKey, log: tenancyLog, stack });
  const engine = await openEngine(config, log, config.settings.pool);
  stack.defer(async () => await engine.close());
  const service = new JobService({
    store,
    feed: new Feed(store.events),
    provider: engine,
    languages: engine.languages,
    signingKey,
    instance: engine.instance,
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
  const recovered = await service.start({ keepQueued: settings.recoverQueued });
  log.scope("jobs").info("recovered", { ...recovered });
  const server = await startServer({
    hostname: settings.addr.host,
    port: settings.addr.port,
    jobs: service,
    ...tenants,
    engine,
    privileges,
    log: log.scope("http"),
    version: VERSION,
    ceilings: settings.ceilings,
  });
  stack.defer(async () => await Promise.race([server.stop(), hurried]));
  return { keys, engine, service, server, storeFailed: store.failed };
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
