/** Opens what a server knows of its tenants, and writes its own start and stop into the audit log. */

import { AUDIT_SUBJECT } from "../core/audit.ts";
import type { SealKey } from "../core/chain.ts";
import type { Log } from "../core/log.ts";
import type { AppOptions } from "../http/app.ts";
import { exportLog } from "../record/export.ts";
import type { Store } from "../store/contract.ts";
import { NOBODY } from "../tenancy/audit-trail.ts";
import { openTenancy } from "../tenancy/tenancy.ts";
import type { LoadedConfig } from "./config.ts";
import { checkKeysExist, type ServerKeys } from "./serve-config.ts";

/** What tenancy works with. */
export interface ServeTenancyOptions {
  readonly store: Store;
  readonly keys: ServerKeys;
  readonly signingKey: SealKey;
  readonly log: Log;
  readonly stack: AsyncDisposableStack;
}

/**
 * @returns what the app needs of it
 * @throws CprgError `failed_precondition` when others can reach the server and there is no key
 */
export async function serveTenancy(
  config: LoadedConfig,
  { store, keys, signingKey, log, stack }: ServeTenancyOptions,
): Promise<Pick<AppOptions, "keys" | "tenancy" | "exportAudit">> {
  const { ratePerMin } = config.settings;
  const tenancy = await openTenancy({ store, ring: keys.ring, log, ratePerMin });
  checkKeysExist(config, tenancy.registry.aliveCount);
  const record = (action: "server.start" | "server.stop") =>
    tenancy.audit.record({ ...NOBODY, action, outcome: "ok" });
  stack.defer(async () => {
    record("server.stop");
    await tenancy.close();
  });
  record("server.start");
  const exportAudit = () => exportLog({ store, key: signingKey, subject: AUDIT_SUBJECT });
  return { keys: keys.ring, tenancy, exportAudit };
}
