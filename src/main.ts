/** The process: command line in, exit code out. The only place that ends it. */

import { setTimeout as sleep } from "node:timers/promises";
import { execute } from "./cli/execute.ts";
import { EXIT } from "./cli/exit-code.ts";
import { noFirstThread } from "./cli/first-thread.ts";
import { processTerminal } from "./cli/terminal.ts";

/** How long records of the log wait for a reader once everything else is done. */
const LOG_DRAIN_MS = 2000;

const terminal = processTerminal();
const code = await Promise.race([execute(process.argv.slice(2), terminal), noFirstThread()]);
// Nothing can be drained then.
if (code === null) process.exit(EXIT.failed);
// process.exit drops what is not written yet; event-loop leftovers must not keep the process.
await terminal.stdout.drain();
await terminal.stderr.drain();
await Promise.race([terminal.log.drain(), sleep(LOG_DRAIN_MS)]);
process.exit(code);
