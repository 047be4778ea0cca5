import { STORE_KINDS } from "./store-harness.ts";
import { taskStoreContract } from "./task-store.ts";

for (const kind of STORE_KINDS) taskStoreContract(kind);
