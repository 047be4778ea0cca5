// The wire between a worker and its control plane, where a test can break it as networks do.

import { createServer, connect as dialTcp, type Socket } from "node:net";

/** The two ends of the wire. */
export type Side = "worker" | "plane";

interface Pair {
  readonly worker: Socket;
  readonly plane: Socket;
}

/** A wire that carries what it is told to. */
export class Wire implements AsyncDisposable {
  readonly #server = createServer((worker) => this.#connect(worker));
  readonly #pairs = new Set<Pair>();
  /** Ends that nobody talks to any more. */
  readonly #orphans = new Set<Socket>();
  #target = 0;
  #watch: { readonly word: Uint8Array; seen(): void } | null = null;

  /** Listens; returns the port for the worker. */
  async open(target: number): Promise<number> {
    this.#target = target;
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return (this.#server.address() as { port: number }).port;
  }

  /** Calls back, once, when the control plane has sent this word and before it is passed on. */
  watch(word: string, seen: () => void): void {
    this.#watch = { word: Buffer.from(word), seen };
  }

  /** Resets the connection at one end; the other end sees it closed. */
  cut(side: Side): void {
    for (const pair of this.#pairs) {
      this.#forget(pair);
      pair[side].resetAndDestroy();
      pair[side === "worker" ? "plane" : "worker"].destroy();
    }
  }

  /** One end's connection stays, and nothing ever comes over it again; the other's is closed. */
  halfOpen(side: Side): void {
    for (const pair of this.#pairs) {
      this.#forget(pair);
      const kept = pair[side];
      this.#orphans.add(kept);
      kept.once("close", () => this.#orphans.delete(kept));
      kept.resume();
      pair[side === "worker" ? "plane" : "worker"].destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { worker, plane } of this.#pairs) for (const end of [worker, plane]) end.destroy();
    for (const orphan of this.#orphans) orphan.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #connect(worker: Socket): void {
    const plane = dialTcp(this.#target, "127.0.0.1");
    const pair = { worker, plane };
    this.#pairs.add(pair);
    this.#carry(pair, worker, plane);
    this.#carry(pair, plane, worker);
  }

  #carry(pair: Pair, from: Socket, to: Socket): void {
    from.on("error", () => undefined);
    from.on("data", (bytes: Buffer) => {
      if (from === pair.plane) this.#look(bytes);
      // What happened at the word may have been the end of the pair.
      if (this.#pairs.has(pair) && !to.write(bytes)) from.pause();
    });
    to.on("drain", () => from.resume());
    from.on("close", () => {
      if (!this.#pairs.has(pair)) return;
      this.#pairs.delete(pair);
      to.destroy();
    });
  }

  #look(bytes: Buffer): void {
    const watched = this.#watch;
    if (watched === null || !bytes.includes(watched.word)) return;
    this.#watch = null;
    watched.seen();
  }

  #forget(pair: Pair): void {
    this.#pairs.delete(pair);
  }
}
