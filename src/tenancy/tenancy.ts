/** Everything that a server knows of its tenants, opened and closed as one. */

import { type Clock, systemClock } from "../core/clock.ts";
import type { Log } from "../core/log.ts";
import type { Store } from "../store/contract.ts";
import { AuditTrail } from "./audit-trail.ts";
import { KeyRegistry } from "./key-registry.ts";
import type { KeyRing } from "./key-ring.ts";
import { RateWindows } from "./rate-windows.ts";

/** The parts. */
export interface Tenancy {
  readonly registry: KeyRegistry;
  readonly rates: RateWindows;
  readonly audit: AuditTrail;
  /** Writes what waits, and forgets the keys. */
  close(): Promise<void>;
}

/** What tenancy works with. */
export interface TenancyOptions {
  readonly store: Pick<Store, "keys" | "events">;
  /** Holds the configured keys; the stored ones are added. */
  readonly ring: KeyRing;
  readonly log: Log;
  readonly ratePerMin?: number;
  readonly clock?: Clock;
}

/** Reads the stored keys, and is ready for requests. */
export async function openTenancy(options: TenancyOptions): Promise<Tenancy> {
  const { store, ring, log, ratePerMin, clock = systemClock } = options;
  const registry = await KeyRegistry.open({ store: store.keys, ring, clock });
  const audit = new AuditTrail({ events: store.events, log, clock });
  const rates = new RateWindows({
    clock,
    ...(ratePerMin === undefined ? {} : { perMin: ratePerMin }),
  });
  return {
    registry,
    rates,
    audit,
    close: async () => {
      await registry.close();
      await audit.flush();
    },
  };
}
