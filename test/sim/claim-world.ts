// Workers and a control plane, the real ones, in a world that a seed decides about: what arrives, what
// time does, which connection stalls or breaks, who is killed, and what programs do. What is true of
// places and programs is kept here, and told by nobody.

import { jest } from "bun:test";
import type { Dialed } from "../../src/bridge/dialer.ts";
import type { Registration } from "../../src/bridge/metadata.ts";
import { FAST_LIVENESS } from "../../src/control-plane/liveness.ts";
import { SHARED_IDENTITY } from "../../src/control-plane/worker-identity.ts";
import { WorkerRegistry } from "../../src/control-plane/worker-registry.ts";
import { CprgError } from "../../src/core/errors.ts";
import { silentLog } from "../../src/core/log.ts";
import type { Outcome } from "../../src/core/outcome.ts";
import type { Reason } from "../../src/core/reasons.ts";
import type { Exec, ExecSpec } from "../../src/provider/contract.ts";
import { NoticeQueue } from "../../src/sandbox/notice-queue.ts";
import type { Place, PlaceFiles } from "../../src/worker/place.ts";
import { Reconnect } from "../../src/worker/reconnect.ts";
import { type DialRequest, Worker } from "../../src/worker/worker.ts";
import { type Chance, FakeConnection, settle } from "./world.ts";

const TOKEN = "token-of-the-simulated-worker";
const LAYERS = {};

/** What was seen to be wrong: the first one fails the seed. */
export class Violation extends Error {}

/** A program that does what the world says. Its output is numbers in order, each on a line. */
export class FakeProgram implements Exec {
  readonly pid = 1;
  readonly #queue = new NoticeQueue();
  readonly #end = Promise.withResolvers<Outcome>();
  #isWriting = false;
  #lines = 0;
  isOver = false;

  get notices() {
    return this.#queue;
  }

  get outcome(): Promise<Outcome> {
    return this.#end.promise;
  }

  /** Prints a few lines, unless it is held back. */
  print(count: number): boolean {
    if (this.isOver || this.#isWriting) return false;
    this.#isWriting = true;
    let text = "";
    for (let line = 0; line < count; line += 1) {
      text += `${this.#lines}\n`;
      this.#lines += 1;
    }
    void this.#queue.output("stdout", Buffer.from(text)).then(() => {
      this.#isWriting = false;
    });
    return true;
  }

  /** Ends by itself. Its exit code tells how much it printed. */
  exit(): void {
    this.#finish({ exitCode: this.#lines, signal: null, reason: "exit" });
  }

  kill(reason: Reason): void {
    this.#finish({ exitCode: null, signal: "SIGKILL", reason });
  }

  async write(): Promise<void> {}
  async closeInput(): Promise<void> {}
  resize(): void {}
  signal(): void {}

  #finish(end: Pick<Outcome, "exitCode" | "signal" | "reason">): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#queue.end();
    const rest = { limitsHit: [], violations: [], usage: null, durationMs: 1, killed: 0 };
    this.#end.resolve({ ...end, ...rest });
  }
}

/** A claim's place, as it really is. */
export class FakePlace implements Place {
  readonly root = "/root";
  readonly home = "/home";
  readonly layers = LAYERS;
  readonly missing = [];
  readonly limits = null;
  readonly files = {} as PlaceFiles;
  readonly programs = new Set<FakeProgram>();
  readonly #world: ClaimWorld;
  /** `TASK:EPOCH`. */
  readonly key: string;
  readonly #secret: string;
  isReleased = false;

  constructor(world: ClaimWorld, key: string, secret: string) {
    this.#world = world;
    this.key = key;
    this.#secret = secret;
    world.places.add(this);
  }

  async exec({ arguments: words, variables }: ExecSpec): Promise<Exec> {
    const [marker = "", key = ""] = words;
    if (this.isReleased) throw this.#wrong(`${marker} started in a place that is gone`);
    if (key !== this.key) throw this.#wrong(`${marker} of ${key} started in ${this.key}`);
    if (variables["SECRET"] !== this.#secret)
      throw this.#wrong(`${marker} got another's variables`);
    if (this.#world.started.has(marker)) throw this.#wrong(`${marker} started twice`);
    this.#world.started.add(marker);
    const program = new FakeProgram();
    this.programs.add(program);
    return program;
  }

  /** Kept, because whoever called hears no more than that a handler failed. */
  #wrong(what: string): Violation {
    const violation = new Violation(what);
    this.#world.violation ??= violation;
    return violation;
  }

  async release(): Promise<void> {
    for (const program of this.programs) program.kill("shutdown");
    this.isReleased = true;
    this.#world.places.delete(this);
  }
}

/** A worker's process, which may be killed and started again with the same id. */
export class FakeHost {
  readonly id: string;
  readonly isPlain: boolean;
  isReachable = true;
  connection: FakeConnection | null = null;
  worker: Worker;
  ended: Promise<unknown>;
  #secret: string | undefined;
  readonly #world: ClaimWorld;

  constructor(world: ClaimWorld, id: string, isPlain: boolean) {
    this.#world = world;
    this.id = id;
    this.isPlain = isPlain;
    this.worker = this.#newWorker();
    this.ended = this.worker.run();
  }

  /** The process dies: its programs with it, and nothing more is heard of it. */
  crash(): void {
    this.connection?.cut();
    this.connection = null;
    const { worker } = this;
    for (const place of this.#world.placesOf(worker)) void place.release();
    void worker.kill();
    this.worker = this.#newWorker();
    this.ended = this.worker.run();
  }

  #newWorker(): Worker {
    const world = this.#world;
    const worker: Worker = new Worker({
      slots: 2,
      isOnce: false,
      isPlain: this.isPlain,
      variables: {},
      readBytesMax: 1,
      log: silentLog,
      reconnect: new Reconnect({ random: () => world.chance.below(1000) / 1000 }),
      saveSecret: (secret) => {
        this.#secret = secret;
      },
      openPlace: async ({ key: { taskId, epoch }, env }, signal) => {
        for (let turns = world.chance.below(30); turns > 0; turns -= 1) await Promise.resolve();
        signal.throwIfAborted();
        const place = new FakePlace(world, `${taskId}:${epoch}`, env["SECRET"] ?? "");
        world.ownerOf.set(place, worker);
        return place;
      },
      dial: (request) => this.#dial(request),
    });
    return worker;
  }

  async #dial({ methods, slots, claims }: DialRequest): Promise<Dialed> {
    const { chance, plane } = this.#world;
    if (!this.isReachable) throw new CprgError("unavailable", "no route");
    this.connection?.cut();
    const registration: Registration = {
      workerId: this.id,
      name: "",
      labels: {},
      methods,
      version: "",
      slots,
      secret: this.isPlain ? undefined : this.#secret,
      claims,
    };
    const { control, connected } = plane.admit(
      registration,
      await plane.authenticate(TOKEN, { address: "", certificateName: undefined }),
    );
    const connection = new FakeConnection(1 + chance.below(6));
    this.connection = connection;
    connected(connection.ends[0]);
    const peer = new Set(control.methods);
    return { stream: connection.ends[1], control, peer, gone: Promise.resolve() };
  }
}

/** All of it. */
export class ClaimWorld {
  readonly chance: Chance;
  /** Places that exist, and the worker whose each is. */
  readonly places = new Set<FakePlace>();
  readonly ownerOf = new Map<FakePlace, Worker>();
  /** Programs that ever ran, by a word that each start has for itself. */
  readonly started = new Set<string>();
  readonly hosts: readonly FakeHost[];
  violation: Violation | null = null;
  plane = newPlane();

  constructor(chance: Chance) {
    this.chance = chance;
    this.hosts = ["w1", "w2"].map((id) => new FakeHost(this, id, chance.is(0.25)));
  }

  placesOf(worker: Worker): FakePlace[] {
    return [...this.places].filter((place) => this.ownerOf.get(place) === worker);
  }

  /** Another process on the control plane's address, which knows nothing. */
  restartPlane(): void {
    this.plane.close();
    for (const { connection } of this.hosts) connection?.cut();
    this.plane = newPlane();
  }

  /** Lets frames arrive, in turn from each side of each connection. */
  deliver(most: number): number {
    let delivered = 0;
    for (const { connection } of this.hosts) {
      for (let frames = this.chance.below(most + 1); frames > 0; frames -= 1) {
        if (connection?.deliver(this.chance.is(0.5) ? 0 : 1)) delivered += 1;
      }
    }
    return delivered;
  }

  /** Time passes in small parts, as nothing that waits for a promise may be overtaken by it. */
  async pass(milliseconds: number, meanwhile: () => void = () => undefined): Promise<void> {
    for (let left = milliseconds; left > 0; left -= 500) {
      jest.advanceTimersByTime(Math.min(500, left));
      meanwhile();
      await turn();
    }
  }
}

/** Lets everything run that waits for nothing but its turn, `setImmediate` included. */
export async function turn(): Promise<void> {
  await settle();
  // The event loop's own turn, which no fake timer holds.
  await new Promise(setImmediate);
  await settle();
}

function newPlane(): WorkerRegistry {
  return new WorkerRegistry({
    authenticate: () => SHARED_IDENTITY,
    version: "sim",
    log: silentLog,
    liveness: FAST_LIVENESS,
  });
}
