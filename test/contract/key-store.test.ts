import { keyStoreContract } from "./key-store.ts";
import { STORE_KINDS } from "./store-harness.ts";

for (const kind of STORE_KINDS) keyStoreContract(kind);
