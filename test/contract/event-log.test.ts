import { eventLogContract } from "./event-log.ts";
import { STORE_KINDS } from "./store-harness.ts";

for (const kind of STORE_KINDS) eventLogContract(kind);
