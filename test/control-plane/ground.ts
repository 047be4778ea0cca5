// A control plane on a free port, with workers in this process and in others.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dial } from "../../src/bridge/dialer.ts";
import type { TaskView } from "../../src/control-plane/contract.ts";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import type { ControlPlaneCreateOptions } from "../../src/control-plane/control-plane-options.ts";
import { newId } from "../../src/core/ids.ts";
import { silentLog } from "../../src/core/log.ts";
import { hasTaskEnded } from "../../src/core/task.ts";
import { Native } from "../../src/sandbox/native.ts";
import type { JobRunner } from "../../src/worker/job-methods.ts";
import type { Place } from "../../src/worker/place.ts";
import { PlainPlace } from "../../src/worker/plain-place.ts";
import { Reconnect } from "../../src/worker/reconnect.ts";
import { Worker, type WorkerEnd, type WorkerOptions } from "../../src/worker/worker.ts";
import {
  startWorkerProcess,
  type WorkerProcess,
  type WorkerProcessOptions,
} from "../worker/process.ts";

export const TOKEN = "shared-token-of-the-test-0123456789";
export const PATH = "/usr/local/bin:/usr/bin:/bin";

/** Heartbeats each second, and loss that is seen soon. */
export const QUICK = {
  heartbeatSeconds: 1,
  silenceMs: 5000,
  graceMs: 1500,
  claimTtlSeconds: 10,
} as const;

const IS_THERE: readonly string[] = ["idle", "busy"];

/** A worker of this process. */
export interface WorkerHere {
  readonly id: string;
  readonly worker: Worker;
  readonly ended: Promise<WorkerEnd>;
  readonly secret: () => string | undefined;
}

export interface WorkerHereOptions {
  /** Default: the control plane's. */
  readonly port?: number;
  readonly token?: string;
  readonly id?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly slots?: number;
  readonly secret?: string;
  /** Runs jobs; without one it runs none. */
  readonly jobs?: JobRunner;
  /** Its claims run no program, and cost next to nothing. */
  readonly isIdle?: boolean;
  /** Before a place is opened, and what makes a claim fail. */
  readonly beforeOpen?: (signal: AbortSignal) => Promise<void>;
}

class Soon extends Reconnect {
  override next(end: Parameters<Reconnect["next"]>[0]): ReturnType<Reconnect["next"]> {
    const step = super.next(end);
    return step.type === "stop" ? step : { type: "dial", pauseMs: 10 };
  }
}

/** Starts a worker in this process, whose claims are beneath a directory. */
export async function startWorkerHere(
  options: WorkerHereOptions & { readonly port: number },
  directory: string,
): Promise<WorkerHere> {
  const { port, token = TOKEN, id = newId(), labels = {}, slots = 1, isIdle = false } = options;
  const native = await Native.load({ dataDir: directory });
  let { secret } = options;
  const openPlace: WorkerOptions["openPlace"] = async (order, signal) => {
    await options.beforeOpen?.(signal);
    if (isIdle) return idlePlace();
    const top = join(directory, id, order.key.taskId);
    return new PlainPlace({ native, root: join(top, "root"), home: join(top, "home") });
  };
  const worker = new Worker({
    slots,
    openPlace,
    jobs: options.jobs,
    dial: ({ methods, slots: own, claims, signal }) => {
      const named = { workerId: id, name: `worker ${id}`, labels, version: "test" };
      const registration = { ...named, methods, slots: own, secret, claims };
      return dial({ host: "127.0.0.1", port, token, signal, registration });
    },
    saveSecret: (given) => {
      secret = given;
    },
    variables: { PATH },
    readBytesMax: 1024,
    isOnce: false,
    log: silentLog,
    reconnect: new Soon(),
  });
  return { id, worker, ended: worker.run(), secret: () => secret };
}

/** A control plane and all that belongs to it; disposing leaves nothing behind. */
export class Ground implements AsyncDisposable {
  readonly plane: ControlPlane;
  readonly port: number;
  readonly #directory = mkdtempSync(join(tmpdir(), "cprg-plane-"));
  readonly #workers: WorkerHere[] = [];
  readonly #processes: WorkerProcess[] = [];

  private constructor(plane: ControlPlane, port: number) {
    this.plane = plane;
    this.port = port;
  }

  static async open(options: ControlPlaneCreateOptions = {}): Promise<Ground> {
    const { liveness, ...rest } = options;
    const plane = await ControlPlane.create({
      token: TOKEN,
      stopGraceMs: 0,
      liveness: { ...QUICK, ...liveness },
      ...rest,
    });
    const { port } = await plane.serve({ port: 0 });
    return new Ground(plane, port);
  }

  /** Starts a worker here, and waits until it can be claimed. */
  async worker(options: WorkerHereOptions = {}): Promise<WorkerHere> {
    const here = await this.start(options);
    await until(() =>
      this.plane.workers().some(({ id, status }) => id === here.id && IS_THERE.includes(status)),
    );
    return here;
  }

  /** Starts a worker here. */
  async start(options: WorkerHereOptions = {}): Promise<WorkerHere> {
    const here = await startWorkerHere({ port: this.port, ...options }, this.#directory);
    this.#workers.push(here);
    return here;
  }

  /** Starts a worker in a process of its own, and waits until it can be claimed. */
  async process(
    words: readonly string[] = ["--token", TOKEN],
    options: Pick<WorkerProcessOptions, "isIsolated" | "env"> = {},
  ): Promise<WorkerProcess> {
    const before = this.#there();
    const worker = startWorkerProcess(this.port, { words, ...options });
    this.#processes.push(worker);
    await until(() => this.#there() > before);
    return worker;
  }

  /** A task once it has a status, or any end. */
  async has(id: string, status: TaskView["status"]): Promise<TaskView> {
    for (;;) {
      const task = await this.plane.task(id);
      if (task.status === status) return task;
      if (hasTaskEnded(task)) throw new Error(`it is ${task.status}: ${task.reason} ${task.error}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  #there(): number {
    return this.plane.workers().filter(({ status }) => IS_THERE.includes(status)).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.plane.stop({ graceMs: 0 });
    for (const { worker, ended } of this.#workers) {
      await worker.kill();
      await ended;
    }
    for (const worker of this.#processes) await worker.end();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

function idlePlace(): Place {
  const none = (): never => {
    throw new Error("this place runs nothing");
  };
  return {
    root: "/root",
    home: "/home",
    layers: {},
    missing: [],
    limits: null,
    files: new Proxy({} as Place["files"], { get: none }),
    exec: none,
    release: async () => undefined,
  };
}

/** Waits for something to hold. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 2));
}

/** A promise that others settle. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
