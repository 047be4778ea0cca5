/** How a control plane works, and what it is made of. */

import type { ListenerTls } from "../bridge/listener.ts";
import type { Clock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { SecretSet } from "../core/secrets.ts";
import { Feed } from "../record/feed.ts";
import type { Store } from "../store/contract.ts";
import { type ControlKeys, ephemeralControlKeys } from "../store/control-keys.ts";
import { memoryStore } from "../store/memory-store.ts";
import type { Liveness } from "./liveness.ts";

/** Where workers are listened for when nothing is said. */
export const BRIDGE_HOST_DEFAULT = "127.0.0.1";
export const BRIDGE_PORT_DEFAULT = 7600;
/** How long `stop` waits for tasks that run, unless it is told. */
export const STOP_GRACE_MS_DEFAULT = 30_000;

/** How long tasks that have ended are kept in memory, unless it is told. */
export const MEMORY_KEPT_MS = 3_600_000;

/** What a control plane needs of a store. */
export type ControlStore = Pick<
  Store,
  "tasks" | "events" | "workerTokens" | "storedBytes" | "close"
>;

/** How a control plane works. */
export interface ControlPlaneOptions {
  /** The shared bearer: taken from this host alone. Without it only minted tokens let workers in. */
  readonly token?: string;
  /** Takes the shared bearer from any address. */
  readonly allowShared?: boolean;
  /** Claims that one tenant may have at once. */
  readonly tenantLimit?: number;
  /** Tasks that may wait, of all tenants together, and of one. */
  readonly queueMax?: number;
  readonly queueTenantMax?: number;
  /** Bytes that may be kept for one tenant; without it nobody looks. */
  readonly tenantBytesMax?: number;
  readonly liveness?: Partial<Liveness>;
  readonly quarantineMs?: number;
  readonly stopGraceMs?: number;
  /**
   * How long tasks that have ended are kept in memory. A store that was given is pruned by whoever
   * has it.
   */
  readonly keptMs?: number;
  /** What workers are told. */
  readonly version?: string;
  readonly log?: Log;
  readonly clock?: Clock;
  /** Where values of tasks' variables are held while the tasks have a claim. */
  readonly secrets?: SecretSet;
  /** Waits between attempts to store an end, for tests. */
  readonly finishRetryMs?: readonly number[];
}

/** What {@link ControlPlane.create} takes beside. */
export interface ControlPlaneCreateOptions extends ControlPlaneOptions {
  /** What it keeps everything in, and closes at the end; default: memory. */
  readonly store?: ControlStore;
  /** Opens a store. */
  storeFactory?(): Promise<ControlStore> | ControlStore;
  /** Whether `stop` closes the store; default: it does. */
  readonly ownsStore?: boolean;
  /** Whether tasks that an earlier control plane left queued wait again; else they fail. Default: true. */
  readonly recoverQueued?: boolean;
  /** Where its keys are kept; without it they live as long as the process. */
  readonly dataDirectory?: string;
  /** Feeds those who follow logs; default: one of its own. */
  readonly feed?: Feed;
}

/** What a control plane is made of. */
export interface ControlPlaneParts {
  readonly store: ControlStore;
  readonly ownsStore: boolean;
  readonly keys: ControlKeys;
  readonly feed: Feed;
  /** Of a store that nobody else prunes. */
  readonly prune?: Store["prune"];
}

/** Where to listen for workers. */
export interface ServeOptions {
  readonly host?: string;
  /** 0: any that is free. */
  readonly port?: number;
  readonly tls?: ListenerTls;
}

/** All in memory. */
export function memoryParts(): ControlPlaneParts {
  const store = memoryStore();
  const { prune } = store;
  const feed = new Feed(store.events);
  return { store, ownsStore: true, keys: ephemeralControlKeys(), feed, prune };
}
