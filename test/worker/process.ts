// `cprg worker` as a process of its own, and a control plane that lets it in.

import { chmodSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Listener, type ListenerTls, listen } from "../../src/bridge/listener.ts";
import type { Liveness } from "../../src/control-plane/liveness.ts";
import { SHARED_IDENTITY } from "../../src/control-plane/worker-identity.ts";
import { WorkerRegistry } from "../../src/control-plane/worker-registry.ts";
import { CprgError } from "../../src/core/errors.ts";
import { silentLog } from "../../src/core/log.ts";

export const TOKEN = "token-of-the-worker-0123456789";
const MAIN = join(import.meta.dir, "../../src/main.ts");

export interface Plane {
  readonly registry: WorkerRegistry;
  readonly port: number;
  close(): Promise<void>;
}

/** Where a control plane listens. */
export interface PlaneOptions {
  readonly tls?: ListenerTls;
  readonly port?: number;
  /** Default: 127.0.0.1. */
  readonly host?: string;
  /** Default: a heartbeat each second. */
  readonly liveness?: Partial<Liveness>;
}

/** A control plane on a free port, or on one that it had before. */
export async function startPlane(options: PlaneOptions = {}): Promise<Plane> {
  const registry = new WorkerRegistry({
    authenticate: (token) => {
      if (token === TOKEN) return SHARED_IDENTITY;
      throw new CprgError("unauthenticated", "no such token", { reason: "BAD_TOKEN" });
    },
    version: "test",
    log: silentLog,
    liveness: { heartbeatSeconds: 1, silenceMs: 10_000, ...options.liveness },
  });
  const listener: Listener = await listen({
    host: options.host ?? "127.0.0.1",
    port: options.port ?? 0,
    ...(options.tls === undefined ? {} : { tls: options.tls }),
    admission: registry,
  });
  return {
    registry,
    port: listener.port,
    close: async () => {
      registry.close();
      await listener.close({ graceMs: 1000 });
    },
  };
}

export interface WorkerProcess {
  readonly pid: number;
  readonly root: string;
  readonly stateDir: string;
  readonly exited: Promise<number>;
  /** What it wrote to standard error. */
  readonly said: Promise<string>;
  kill(signal: NodeJS.Signals): void;
  /** Kills it, and removes its directories. */
  end(): Promise<void>;
}

export interface WorkerProcessOptions {
  readonly words?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly directory?: string;
  /** Claims in sandboxes instead of a directory. */
  readonly isIsolated?: boolean;
  /** The control plane's; default: 127.0.0.1. */
  readonly host?: string;
  /** What runs `cprg`; default: CPRG_BIN, or the source. */
  readonly program?: readonly string[];
}

function cprg(): readonly string[] {
  const binary = process.env["CPRG_BIN"];
  return binary === undefined ? [process.execPath, MAIN] : [resolve(binary)];
}

/** Starts one; `words` come after --connect, --root and --state-dir. */
export function startWorkerProcess(
  port: number,
  {
    words = ["--token", TOKEN],
    env = {},
    stdin = "",
    directory,
    isIsolated = false,
    host = "127.0.0.1",
    program = cprg(),
  }: WorkerProcessOptions = {},
): WorkerProcess {
  const top = directory ?? mkdtempSync(join(tmpdir(), "cprg-worker-"));
  // Process 1 of a sandbox passes through the run directory's parents as another user.
  chmodSync(top, 0o711);
  const [root, stateDir] = [join(top, "root"), join(top, "state")];
  const child = Bun.spawn(
    [
      ...program,
      "worker",
      `--connect=${host}:${port}`,
      ...(isIsolated ? [] : [`--root=${root}`]),
      `--state-dir=${stateDir}`,
      ...words,
    ],
    {
      env: {
        PATH: "/usr/bin:/bin",
        HOME: top,
        CPRG_DATA_DIR: join(top, "data"),
        CPRG_RUN_DIR: join(top, "run"),
        TMPDIR: top,
        ...env,
      },
      stdin: Buffer.from(stdin),
      stdout: "ignore",
      stderr: "pipe",
    },
  );
  return {
    pid: child.pid,
    root,
    stateDir,
    exited: child.exited,
    said: new Response(child.stderr).text(),
    kill: (signal) => child.kill(signal),
    end: async () => {
      child.kill("SIGKILL");
      await child.exited;
      if (existsSync(top)) rmSync(top, { recursive: true, force: true });
    },
  };
}
