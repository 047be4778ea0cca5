import { STORE_KINDS } from "./store-harness.ts";
import { workerTokenStoreContract } from "./worker-token-store.ts";

for (const kind of STORE_KINDS) workerTokenStoreContract(kind);
