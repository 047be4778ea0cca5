/** The process: command line in, exit code out. The only place that ends it. */

import { setTimeout as sleep } from "node:timers/promises";
import { execute } from "./cli/execute.ts";
import { processTerminal } from "./cli/terminal.ts";

/** How long records of the log wait for a reader once everything else is done. */
const LOG_DRAIN_MS = 2000;

const terminal = processTerminal();
const code = await execute(process.argv.slice(2), terminal);
// process.exit drops what is not written yet; event-loop leftovers must not keep the process.
await terminal.stdout.drain();
await terminal.stderr.drain();
await Promise.race([terminal.log.drain(), sleep(LOG_DRAIN_MS)]);
process.exit(code);
