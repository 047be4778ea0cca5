/**
 * Sandboxes that are built before anyone asks for them. A pooled sandbox is process 1 in its groups,
 * with its root built, waiting for its first exec; it has run nothing, and once taken it never comes
 * back. Which limits are kept ready follows what is asked for.
 */

import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { Sandbox } from "./sandbox.ts";

/** Limits that a sandbox is built with; the others are each exec's. */
export type PoolShape = Pick<Limits, "mem_mb" | "cpu_cores" | "pids" | "disk_mb" | "inodes">;

/** What a pool is made of. */
export interface PoolParts {
  /** Most sandboxes that wait or are being built; 0 keeps none. */
  readonly sandboxesMax: number;
  readonly log: Log;
  /** @throws whatever the start of a sandbox throws; then nothing of it is left */
  build(limits: Limits): Promise<Sandbox>;
  /** Resolves when building takes nothing from anyone who is in a hurry; bounded. */
  calm(): Promise<void>;
  /** Whether process 1 runs now: its death is heard of later than it happens. */
  isAlive(sandbox: Sandbox): boolean;
}

interface Pooled {
  readonly shape: string;
  readonly sandbox: Sandbox;
}

/** Sandboxes that wait, oldest first. */
export class SandboxPool {
  readonly #parts: PoolParts;
  readonly #ready: Pooled[] = [];
  /** Those that are being removed. */
  readonly #removals = new Set<Promise<void>>();
  /** Limits that are asked for and not yet built, in order. */
  readonly #wanted: Limits[] = [];
  #building: Promise<void> | null = null;
  /** Whether one is being built now, rather than waited with. */
  #isBuilding = false;
  #isClosed = false;

  constructor(parts: PoolParts) {
    this.#parts = parts;
  }

  /** How many wait. */
  get size(): number {
    return this.#ready.length;
  }

  /** Builds as many as the pool holds. */
  fill(limits: Limits): void {
    for (let room = this.#room(); room > 0; room -= 1) this.#want(limits);
  }

  /** One with these limits, and the building of its successor; null when none waits. */
  take(limits: Limits): Sandbox | null {
    const shape = shapeOf(limits);
    const fitting = this.#ready.filter((pooled) => pooled.shape === shape);
    for (const pooled of fitting) {
      this.#ready.splice(this.#ready.indexOf(pooled), 1);
      // Not its successor alone: one that died while it waited has left room too.
      this.fill(limits);
      if (this.#parts.isAlive(pooled.sandbox)) return pooled.sandbox;
      this.#dropDead(pooled);
    }
    if (this.#room() === 0) this.#evict(shape);
    this.fill(limits);
    return null;
  }

  /**
   * Gives back what all that wait hold: whoever is to run now goes before what might.
   *
   * @returns whether there was any, be it on its way in or out
   */
  async giveWay(): Promise<boolean> {
    const hadAny = this.#ready.length > 0 || this.#building !== null || this.#removals.size > 0;
    this.#wanted.length = 0;
    await this.#building;
    for (const { sandbox } of this.#ready.splice(0)) this.#remove(sandbox);
    await Promise.all(this.#removals);
    return hadAny;
  }

  /** Removes every sandbox that waits; idempotent. @throws when one cannot be removed */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.giveWay();
  }

  #room(): number {
    const taken = this.#ready.length + this.#wanted.length + (this.#isBuilding ? 1 : 0);
    return Math.max(0, this.#parts.sandboxesMax - taken);
  }

  #want(limits: Limits): void {
    if (this.#isClosed || this.#room() === 0) return;
    this.#wanted.push(limits);
    this.#building ??= this.#buildWanted();
  }

  /** One after the other: whoever needs a sandbox at this moment has the CPUs first. */
  async #buildWanted(): Promise<void> {
    while (this.#wanted.length > 0) {
      await this.#parts.calm();
      const limits = this.#wanted.shift();
      if (limits === undefined) break;
      this.#isBuilding = true;
      try {
        this.#keep({ shape: shapeOf(limits), sandbox: await this.#parts.build(limits) });
      } catch (error) {
        // No retry: the next that is asked for fails in the open, or wants its successor.
        this.#parts.log.warn("no sandbox built ahead", { error });
        this.#wanted.length = 0;
      } finally {
        this.#isBuilding = false;
      }
    }
    // In the same step as the last look: what is wanted after it starts anew.
    this.#building = null;
  }

  #keep(pooled: Pooled): void {
    this.#ready.push(pooled);
    const drop = (): void => {
      const index = this.#ready.indexOf(pooled);
      if (index < 0) return;
      this.#ready.splice(index, 1);
      this.#dropDead(pooled);
    };
    void pooled.sandbox.death.then(drop, drop);
  }

  #dropDead({ sandbox }: Pooled): void {
    this.#parts.log.warn("a waiting sandbox died", { pid: sandbox.pid });
    this.#remove(sandbox);
  }

  /** Makes room for other limits than those that wait. */
  #evict(shape: string): void {
    const index = this.#ready.findIndex((pooled) => pooled.shape !== shape);
    if (index < 0) return;
    const [pooled] = this.#ready.splice(index, 1);
    if (pooled !== undefined) this.#remove(pooled.sandbox);
  }

  #remove(sandbox: Sandbox): void {
    const removal = sandbox.destroy().catch((error: unknown) => {
      this.#parts.log.error("a waiting sandbox was not removed", { error });
    });
    this.#removals.add(removal);
    void removal.then(() => this.#removals.delete(removal));
  }
}

function shapeOf({ mem_mb, cpu_cores, pids, disk_mb, inodes }: PoolShape): string {
  return `${mem_mb} ${cpu_cores} ${pids} ${disk_mb} ${inodes}`;
}
