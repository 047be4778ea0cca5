import { pruningContract } from "./pruning.ts";
import { STORE_KINDS } from "./store-harness.ts";

for (const kind of STORE_KINDS) pruningContract(kind);
