/** The process: command line in, exit code out. The only place that ends it. */

import { execute } from "./cli/execute.ts";
import { processTerminal } from "./cli/terminal.ts";

const terminal = processTerminal();
const code = await execute(process.argv.slice(2), terminal);
// process.exit drops what is not written yet; event-loop leftovers must not keep the process.
await terminal.stdout.drain();
await terminal.stderr.drain();
process.exit(code);
