// A control plane and a worker as processes of their own, with a wire between them.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../e2e/until.ts";
import { startWorkerProcess, type WorkerProcess } from "../worker/process.ts";
import { PlaneProcess, type TaskEnded } from "./plane-process.ts";
import { TOKEN } from "./times.ts";
import { type Side, Wire } from "./wire.ts";

/** Longest that a task takes to end, whatever happens. */
const END_MS_MAX = 60_000;

/** Both sides, which can be killed and come back. */
export class ChaosGround implements AsyncDisposable {
  readonly wire: Wire;
  readonly witness: string;
  readonly #top: string;
  readonly #planePort: number;
  readonly #wirePort: number;
  #plane: PlaneProcess;
  #worker: WorkerProcess;
  #restart: Promise<void> = Promise.resolve();

  private constructor(
    top: string,
    { wire, plane }: { readonly wire: Wire; readonly plane: PlaneProcess },
    ports: readonly [number, number],
  ) {
    this.#top = top;
    this.wire = wire;
    this.witness = join(top, "witness");
    writeFileSync(this.witness, "");
    this.#plane = plane;
    [this.#planePort, this.#wirePort] = ports;
    this.#worker = this.#startWorker();
  }

  static async open(): Promise<ChaosGround> {
    const top = mkdtempSync(join(tmpdir(), "cprg-chaos-"));
    const plane = new PlaneProcess(top, 0);
    const planePort = await plane.port;
    const wire = new Wire();
    const wirePort = await wire.open(planePort);
    mkdirSync(join(top, "worker"));
    return new ChaosGround(top, { wire, plane }, [planePort, wirePort]);
  }

  async submit(id: string): Promise<void> {
    await this.#plane.submit(id, this.witness);
  }

  /** How a task ended; asks the control plane that comes after one that was killed. */
  async ended(id: string): Promise<TaskEnded> {
    const asked = async (): Promise<TaskEnded> => {
      for (;;) {
        const ended = await this.#plane.ended(id);
        if (ended !== null) return ended;
        await this.#restart;
      }
    };
    const late = new AbortController();
    const timer = sleep(END_MS_MAX, undefined, { signal: late.signal }).then(() => {
      throw new Error(`the task did not end: ${readFileSync(this.witness, "utf8")}`);
    });
    timer.catch(() => undefined);
    try {
      return await Promise.race([asked(), timer]);
    } finally {
      late.abort();
    }
  }

  /** Kills one side, and starts it again. */
  restart(side: Side): Promise<void> {
    this.#restart = side === "worker" ? this.#restartWorker() : this.#restartPlane();
    return this.#restart;
  }

  /** Stops one side for a while. */
  async freeze(side: Side, forMs: number): Promise<void> {
    const process = side === "worker" ? this.#worker : this.#plane;
    process.kill("SIGSTOP");
    await sleep(forMs);
    process.kill("SIGCONT");
  }

  /** Resolves when both sides run. */
  async settled(): Promise<void> {
    await this.#restart;
  }

  async rss(): Promise<number> {
    return await this.#plane.rss();
  }

  async until(look: () => boolean, what: string): Promise<void> {
    await until(() => (look() ? true : null), { what });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const side of [this.#worker, this.#plane]) side.kill("SIGCONT");
    await this.#worker.end();
    this.#plane.kill("SIGKILL");
    await this.#plane.exited;
    await this.wire[Symbol.asyncDispose]();
    rmSync(this.#top, { recursive: true, force: true });
  }

  async #restartWorker(): Promise<void> {
    this.#worker.kill("SIGKILL");
    await this.#worker.exited;
    this.#worker = this.#startWorker();
  }

  async #restartPlane(): Promise<void> {
    this.#plane.kill("SIGKILL");
    await this.#plane.exited;
    this.#plane = new PlaneProcess(this.#top, this.#planePort);
    await this.#plane.port;
  }

  #startWorker(): WorkerProcess {
    return startWorkerProcess(this.#wirePort, {
      directory: join(this.#top, "worker"),
      words: ["--token", TOKEN],
    });
  }
}
