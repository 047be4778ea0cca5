/** `cprg worker`: opens state and shim, gives the token up, and works until it is told to stop. */

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DialerTls, dial } from "../bridge/dialer.ts";
import { assert, CprgError } from "../core/errors.ts";
import type { LocalEngine } from "../sandbox/engine-contract.ts";
import { Native } from "../sandbox/native.ts";
import type { ClaimOrder } from "../worker/claim-request.ts";
import { openPlainPlace } from "../worker/open-plain-place.ts";
import type { Place } from "../worker/place.ts";
import { Reconnect, WORKER_EXIT } from "../worker/reconnect.ts";
import { SandboxPlace } from "../worker/sandbox-place.ts";
import { parseToken, readTokenFile, restartWithout } from "../worker/token-source.ts";
import { type DialRequest, Worker, type WorkerOptions } from "../worker/worker.ts";
import { WorkerState } from "../worker/worker-state.ts";
import { loadConfig } from "./config.ts";
import { openEngine } from "./engine.ts";
import { usageError } from "./flags.ts";
import { type JsonLog, jsonLog } from "./log-json.ts";
import { takeSignals } from "./run-stop.ts";
import type { Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";
import { workerJobs } from "./worker-jobs.ts";
import { type WorkerFlags, type WorkerSettings, workerSettings } from "./worker-settings.ts";

const PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const STDIN_BYTES_MAX = 64 * 1024;

/** Flags as they were given, with those of the token. */
export type AllWorkerFlags = WorkerFlags & {
  readonly token: string | undefined;
  readonly "token-file": string | undefined;
};

/** Works; returns the exit code. */
export async function workHere(flags: AllWorkerFlags, terminal: Terminal): Promise<number> {
  if (process.platform !== "linux") {
    throw new CprgError("failed_precondition", `Cannot work on ${process.platform}: Linux only`);
  }
  const settings = workerSettings(flags, terminal);
  const native = await Native.load({ dataDir: settings.stateDir });
  // First, because it may start the program anew.
  const token = await takeToken(flags, { terminal, native });
  native.harden();
  const { isolate } = settings;
  const sandbox = { sandbox: isolate };
  const config = await loadConfig({ flags: sandbox, env: terminal.env, uid: terminal.uid });
  const log = jsonLog(terminal.log, { spec: config.settings.log, now: Date.now });
  for (const message of config.warnings) log.scope("config").warn(message);
  const state = WorkerState.open(settings.stateDir, { isOptional: settings.isOnce });
  const tls = readTls(flags, settings);
  await using engine =
    isolate === "off" ? null : closing(await openEngine(config, log, { isProven: true }));
  const worker = makeWorker(settings, {
    token,
    state,
    log,
    tls,
    jobs:
      engine === null
        ? undefined
        : workerJobs({
            engine: engine.engine,
            ceilings: config.settings.ceilings,
            log: log.scope("jobs"),
          }),
    openPlace: (order, signal) =>
      engine === null
        ? openPlainClaim(settings, { native, order, signal })
        : SandboxPlace.open(engine.engine, { limits: settings.limits, order, signal }),
  });
  using _signals = takeSignals(terminal, {
    cancel: () => worker.drain(),
    kill: () => void worker.kill(),
  });
  log.scope("worker").info("started", { id: state.id, sandbox: engine?.engine.mode ?? "off" });
  const { exitCode, error } = await worker.run();
  if (error !== undefined) {
    const what = [WORKER_EXIT.refused, WORKER_EXIT.usage].some((code) => code === exitCode)
      ? "refused"
      : "gave up";
    log.scope("worker").error(what, { code: error.code, why: error.message });
    await terminal.stderr.write(`cprg worker: ${what}: ${error.message}\n`).catch(() => undefined);
  }
  return exitCode;
}

/** Closed with the scope: no sandbox outlives the worker. */
function closing(engine: LocalEngine): { readonly engine: LocalEngine } & AsyncDisposable {
  return { engine, [Symbol.asyncDispose]: () => engine.close() };
}

interface Parts {
  readonly openPlace: WorkerOptions["openPlace"];
  readonly jobs: WorkerOptions["jobs"];
  readonly token: string;
  readonly state: WorkerState;
  readonly log: JsonLog;
  readonly tls: DialerTls | undefined;
}

function makeWorker(settings: WorkerSettings, parts: Parts): Worker {
  const { openPlace, jobs, token, state, log, tls } = parts;
  const { host, port, labels, name, proxy } = settings;
  return new Worker({
    slots: settings.slots,
    openPlace,
    jobs,
    dial: ({ methods, slots, claims, signal }: DialRequest) =>
      dial({
        host,
        port,
        token,
        ...(tls === undefined ? {} : { tls }),
        ...(proxy === undefined ? {} : { proxy }),
        signal,
        registration: {
          workerId: state.id,
          name,
          labels,
          methods,
          version: VERSION,
          slots,
          secret: state.secret,
          claims,
        },
      }),
    saveSecret: (secret) => state.saveSecret(secret),
    variables: { PATH: PATH_DEFAULT, ...settings.passed },
    readBytesMax: settings.readBytesMax,
    isOnce: settings.isOnce,
    isPlain: settings.isPlain,
    reconnect: new Reconnect(
      settings.attemptsMax === undefined ? {} : { attemptsMax: settings.attemptsMax },
    ),
    log: log.scope("worker"),
  });
}

/**
 * Each claim has a home of its own, and a root of its own beneath the operator's directory; both go
 * with it, so that no task sees what another left. With --once the directory itself is the root.
 */
async function openPlainClaim(
  { root, isOnce }: WorkerSettings,
  { native, order, signal }: { native: Native; order: ClaimOrder; signal: AbortSignal },
): Promise<Place> {
  assert(root !== null, "without a sandbox there is a root");
  mkdirSync(root, { recursive: true });
  const home = mkdtempSync(join(tmpdir(), "cprg-home-"));
  const own = isOnce ? root : mkdtempSync(join(root, "claim-"));
  const onReleased = (): void => {
    for (const directory of isOnce ? [home] : [home, own]) {
      rmSync(directory, { recursive: true, force: true });
    }
  };
  try {
    return await openPlainPlace({ native, root: own, home, onReleased }, order, signal);
  } catch (error) {
    onReleased();
    throw error;
  }
}

async function takeToken(
  flags: AllWorkerFlags,
  { terminal, native }: { readonly terminal: Terminal; readonly native: Native },
): Promise<string> {
  const { token, "token-file": file } = flags;
  if (file !== undefined) return readTokenFile(file);
  if (token === undefined) throw usageError("Cannot go on: --token or --token-file is missing");
  if (token === "-") return parseToken(await readAll(terminal), "standard input");
  const given = parseToken(token, "--token");
  return restartWithout(native, {
    token: given,
    flag: "token",
    fileFlag: "token-file",
    variable: "CPRG_WORKER_TOKEN",
  });
}

async function readAll(terminal: Terminal): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of terminal.readStdin()) {
    bytes += part.length;
    if (bytes > STDIN_BYTES_MAX) throw usageError("Cannot read the token: standard input is long");
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

function readTls(flags: WorkerFlags, { isTls }: WorkerSettings): DialerTls | undefined {
  if (!isTls) return undefined;
  const read = (path: string | undefined, key: string): Record<string, string> => {
    if (path === undefined) return {};
    if (!existsSync(path)) throw usageError(`Cannot read ${path}: no such file`);
    return { [key]: readFileSync(path, "utf8") };
  };
  return {
    ...read(flags["tls-ca"], "authority"),
    ...read(flags["tls-cert"], "certificate"),
    ...read(flags["tls-key"], "key"),
  };
}
