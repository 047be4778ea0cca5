// The mux under every order of events that seeds come up with: whatever happens, a call has one end,
// items come in order without a gap, an end that is good means that all of it came, and when the
// stream is over nothing is left.
//   CPRG_SIM_SEEDS=10000 CPRG_SIM_SEED=1    how many seeds, and the first

import { expect, test } from "bun:test";
import type { CallOptions, Mux, StreamCall } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { EXEC_START, FS_STAT, FS_UPLOAD } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { ExecItem } from "../../src/gen/messages.ts";
import { Chance, FakeConnection, FakeTime, settle } from "./world.ts";

const SEEDS = Number(process.env["CPRG_SIM_SEEDS"] ?? 500);
const FIRST_SEED = Number(process.env["CPRG_SIM_SEED"] ?? 1);
const STEPS = 260;
const CREDIT = ["/internal/credit"];

/** How often each thing happened, over all seeds. */
const coverage = new Map<string, number>();

function count(what: string): void {
  coverage.set(what, (coverage.get(what) ?? 0) + 1);
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Handlers that do what their request says; `running` counts those that have not cleaned up. */
function servedBy(running: { count: number }): Handlers {
  const during = async <T>(work: () => Promise<T>): Promise<T> => {
    running.count += 1;
    try {
      return await work();
    } finally {
      running.count -= 1;
    }
  };
  return new Handlers()
    .unary(FS_STAT, ({ path }, { signal }) =>
      during(async () => {
        if (path.startsWith("hang")) await aborted(signal);
        if (path.startsWith("fail")) throw new CprgError("not_found", path);
        return { stat: { name: path, type: "", size: 0, mode: 0, modifiedMs: 0, linkTarget: "" } };
      }),
    )
    .serverStream(EXEC_START, async function* ({ argv, command }, context) {
      running.count += 1;
      try {
        let acknowledged = 0;
        context.onAcknowledged((items) => {
          if (items < acknowledged || items > Number(argv[0]))
            throw new Error("acknowledged twice");
          acknowledged = items;
        });
        for (let seq = 1; seq <= Number(argv[0]); seq += 1) {
          yield { stdout: new Uint8Array(Number(argv[1])), seq };
        }
        if (command === "hang") await aborted(context.signal);
        if (command === "fail") throw new CprgError("data_loss", "failed");
      } finally {
        running.count -= 1;
      }
    })
    .clientStream(FS_UPLOAD, (items) =>
      during(async () => {
        let entries = 0;
        for await (const { head } of items) {
          entries += 1;
          if (head?.path === "early") return { entries };
        }
        return { entries };
      }),
    );
}

/** A call under way, with what it must come to. */
interface Running {
  readonly kind: "unary" | "stream" | "upload";
  readonly controller: AbortController;
  readonly settled: Promise<void>;
  readonly stream?: StreamReader;
  /** Does not end by itself. */
  readonly isHanging?: boolean;
}

/** Reads items one at a time, when told to. */
class StreamReader {
  readonly call: StreamCall<ExecItem>;
  readonly #iterator: AsyncIterator<ExecItem>;
  readonly #items: number;
  readonly #hasCredit: boolean;
  #seen = 0;
  #reading: Promise<void> | undefined;
  isOver = false;

  constructor(call: StreamCall<ExecItem>, items: number, hasCredit: boolean) {
    this.call = call;
    this.#items = items;
    this.#hasCredit = hasCredit;
    this.#iterator = call[Symbol.asyncIterator]();
  }

  /** The next item, or the one that is under way. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async readAll(): Promise<void> {
    while (!this.isOver) await this.read();
  }

  async #read(): Promise<void> {
    if (this.isOver) return;
    try {
      const { done, value } = await this.#iterator.next();
      if (done) {
        this.isOver = true;
        expect(this.#seen).toBe(this.#items);
      } else {
        this.#seen += 1;
        expect(value.seq).toBe(this.#seen);
      }
    } catch (error) {
      this.isOver = true;
      if (!CprgError.is(error)) throw error;
      // A reader may be slow where both sides list credit.
      if (this.#hasCredit) expect(error.code).not.toBe("resource_exhausted");
      count(`stream ended: ${error.code}`);
    }
  }
}

class World {
  readonly #chance: Chance;
  readonly #time = new FakeTime();
  readonly #connection: FakeConnection;
  readonly #running = { count: 0 };
  readonly #calls: Running[] = [];
  readonly #bugs: unknown[] = [];
  readonly #hasCredit: boolean;
  /** The connection neither breaks nor ends before the calls do. */
  readonly #isHealthy: boolean;
  readonly sides: readonly [Mux, Mux];

  constructor(seed: number) {
    this.#chance = new Chance(seed);
    this.#isHealthy = this.#chance.is(0.4);
    this.#connection = new FakeConnection(1 + this.#chance.below(6));
    const lists = [this.#chance.is(0.5) ? CREDIT : [], this.#chance.is(0.5) ? CREDIT : []] as const;
    this.#hasCredit = lists.every((list) => list.length > 0);
    const side = (own: 0 | 1): Mux =>
      openMux(this.#connection.ends[own], {
        handlers: servedBy(this.#running),
        own: lists[own],
        peer: new Set(lists[own === 0 ? 1 : 0]),
        startTimer: this.#time.startTimer,
        onBug: (error) => void this.#bugs.push(error),
      });
    this.sides = [side(0), side(1)];
  }

  async run(): Promise<void> {
    for (let step = 0; step < STEPS; step += 1) {
      this.#step();
      await settle();
    }
    await this.#finish();
  }

  #step(): void {
    if (this.#connection.isFrozen && this.#chance.is(0.2)) this.#freeze();
    const roll = this.#chance.below(1000);
    if (roll < 500) this.#deliver();
    else if (roll < 620) this.#call();
    else if (roll < 880) this.#read();
    else if (roll < 910) this.#abort();
    else if (roll < 940) this.#softCancel();
    else if (roll < 980) this.#pass();
    else if (roll < 992) this.#freeze();
    else if (this.#isHealthy) this.#deliver();
    else if (roll < 996) this.#cut();
    else this.#close();
  }

  #deliver(): void {
    for (let frames = 1 + this.#chance.below(8); frames > 0; frames -= 1) {
      if (this.#connection.deliver(this.#chance.is(0.5) ? 0 : 1)) count("frame delivered");
    }
  }

  #call(): void {
    const mux = this.#chance.pick(this.sides);
    const controller = new AbortController();
    const timeout = this.#chance.is(0.35) ? { timeoutMs: this.#chance.below(5000) } : {};
    const options = { signal: controller.signal, ...timeout };
    const kind = this.#chance.pick(["unary", "stream", "upload"] as const);
    count(`called: ${kind}`);
    if (kind === "unary") this.#unary(mux, { controller, options });
    else if (kind === "stream") this.#stream(mux, { controller, options });
    else this.#upload(mux, { controller, options });
  }

  #unary(mux: Mux, { controller, options }: Setup): void {
    const word = this.#chance.pick(["ok", "ok", "hang", "fail"]);
    const path = `${word} ${this.#calls.length}`;
    const settled = mux.call(FS_STAT, { path }, options).then(
      ({ stat }) => {
        expect(stat?.name).toBe(path);
        expect(word).not.toBe("fail");
        count("unary answered");
      },
      (error: CprgError) => {
        if (error.code === "not_found") expect(error.message).toBe(path);
        count(`unary ended: ${error.code}`);
      },
    );
    this.#calls.push({ kind: "unary", controller, settled, isHanging: word === "hang" });
  }

  #stream(mux: Mux, { controller, options }: Setup): void {
    const items = this.#chance.below(30);
    const bytes = this.#chance.pick([1, 1000, 200_000, 200_000]);
    const command = this.#chance.pick(["", "", "hang", "fail"]);
    const argv = [`${items}`, `${bytes}`];
    const call = mux.stream(EXEC_START, { argv, command }, options);
    const stream = new StreamReader(call, items, this.#hasCredit);
    const settled = stream.call.ended.then(() => count("stream over"));
    this.#calls.push({
      kind: "stream",
      controller,
      settled,
      stream,
      isHanging: command === "hang",
    });
  }

  #upload(mux: Mux, { controller, options }: Setup): void {
    const sent = this.#chance.below(30);
    const bytes = this.#chance.pick([1, 1000, 60_000]);
    const fate = this.#chance.pick(["all", "all", "early", "fail"]);
    const items = Array.from({ length: sent }, (_, index) =>
      fate === "early" && index === 2
        ? { head: { path: "early", transfer: null, merge: false, parents: false } }
        : { chunk: new Uint8Array(bytes) },
    );
    const source = async function* (): AsyncGenerator<(typeof items)[number]> {
      yield* items;
      if (fate === "fail") throw new CprgError("not_found", "source");
    };
    const settled = mux.upload(FS_UPLOAD, source(), options).then(
      ({ entries }) => {
        expect(fate).not.toBe("fail");
        expect(entries).toBe(fate === "early" ? Math.min(3, sent) : sent);
        count("upload answered");
      },
      (error: CprgError) => count(`upload ended: ${error.code}`),
    );
    this.#calls.push({ kind: "upload", controller, settled });
  }

  /** Lets frames arrive until a promise has settled. */
  async #until(promise: Promise<unknown>): Promise<void> {
    let isOver = false;
    const over = promise.then(() => {
      isOver = true;
    });
    for (let round = 0; round < 2000 && !isOver; round += 1) {
      this.#connection.deliver(0);
      this.#connection.deliver(1);
      await settle();
      // What waits for a timer of its own: a normal end.
      if (round % 500 === 499) this.#time.advance(11_000);
    }
    expect(isOver).toBe(true);
    await over;
  }

  #read(): void {
    const streams = this.#calls.filter(({ stream }) => stream !== undefined && !stream.isOver);
    for (let reads = this.#chance.below(12); reads > 0 && streams.length > 0; reads -= 1) {
      void this.#chance.pick(streams).stream?.read();
      count("item read");
    }
  }

  #abort(): void {
    if (this.#calls.length === 0) return;
    this.#chance.pick(this.#calls).controller.abort();
    count("signal aborted");
  }

  #softCancel(): void {
    const { stream } = this.#calls.length === 0 ? {} : this.#chance.pick(this.#calls);
    stream?.call.cancel("enough");
    if (stream !== undefined) count("cancelled");
  }

  #pass(): void {
    this.#time.advance(this.#chance.pick([10, 1000, 11_000, 11_000]));
    count("time passed");
  }

  #freeze(): void {
    this.#connection.isFrozen = !this.#connection.isFrozen;
    count(this.#connection.isFrozen ? "frozen" : "thawed");
  }

  #cut(): void {
    this.#connection.cut();
    count("cut");
  }

  #close(): void {
    const error = this.#chance.is(0.5) ? undefined : new CprgError("aborted", "replaced");
    this.#chance.pick(this.sides).close(error);
    count(error === undefined ? "closed well" : "closed with an error");
  }

  /** Every call ends if it is read and not held up; then the stream ends, and all with it. */
  async #finish(): Promise<void> {
    this.#connection.isFrozen = false;
    const calls = Promise.all([
      ...this.#calls.map(({ settled }) => settled),
      ...this.#calls.map(({ stream }) => stream?.readAll()),
    ]);
    if (this.#isHealthy) {
      for (const call of this.#calls) {
        if (call.isHanging) call.controller.abort();
      }
      await this.#until(calls);
      count("all calls ended by themselves");
    }
    if (this.#chance.is(0.5)) this.sides[0].close();
    else this.#connection.cut();
    await this.#until(calls);
    await this.#until(Promise.all(this.sides.map((mux) => mux.closed)));
    expect(this.#running.count).toBe(0);
    expect(this.sides.map(({ servedCalls }) => servedCalls)).toEqual([0, 0]);
    expect(this.#time.waiting).toBe(0);
    expect(this.#bugs).toEqual([]);
    for (const { counts } of this.sides) expect(counts.refused + counts.dropped).toBe(0);
  }
}

interface Setup {
  readonly controller: AbortController;
  readonly options: CallOptions;
}

test(`${SEEDS} seeds from ${FIRST_SEED}`, async () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
    try {
      await new World(seed).run();
    } catch (cause) {
      throw new Error(`CPRG_SIM_SEED=${seed} CPRG_SIM_SEEDS=1`, { cause });
    }
  }
  const table = [...coverage].sort(([a], [b]) => (a < b ? -1 : 1));
  console.log(table.map(([what, times]) => `${`${times}`.padStart(8)}  ${what}`).join("\n"));
  if (SEEDS >= 500) expect(table.filter(([, times]) => times < 100)).toEqual([]);
});
