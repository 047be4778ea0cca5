import { jobRequestsContract } from "./job-requests.ts";
import { STORE_KINDS } from "./store-harness.ts";

for (const kind of STORE_KINDS) jobRequestsContract(kind);
