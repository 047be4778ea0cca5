/** What is kept for a tenant has a bound: above it nothing new is taken. */

import { CprgError } from "../core/errors.ts";
import type { Store } from "../store/contract.ts";

/** Bytes of logs and jobs that are kept for one tenant, unless set otherwise. */
export const TENANT_BYTES_MAX = 10 * 1024 ** 3;

/** What is asked for, in the words of the error. */
export interface StorageRequest {
  /** As in "Cannot take job". */
  readonly what: string;
  readonly bytesMax?: number | undefined;
}

/** @throws CprgError `resource_exhausted` with reason TENANT_STORAGE_FULL */
export async function checkStoredBytes(
  store: Pick<Store, "storedBytes">,
  tenant: string,
  { what, bytesMax = TENANT_BYTES_MAX }: StorageRequest,
): Promise<void> {
  if ((await store.storedBytes(tenant)) < bytesMax) return;
  const state = `${Math.floor(bytesMax / 1024 ** 2)} MiB are stored for tenant "${tenant}"`;
  throw new CprgError("resource_exhausted", `Cannot ${what}: ${state}`, {
    op: what,
    reason: "TENANT_STORAGE_FULL",
    hint: "What is old goes with the server's retention; an administrator can raise CPRG_TENANT_STORED_MB",
  });
}
