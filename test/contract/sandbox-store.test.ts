import { sandboxStoreContract } from "./sandbox-store.ts";
import { STORE_KINDS } from "./store-harness.ts";

for (const kind of STORE_KINDS) sandboxStoreContract(kind);
