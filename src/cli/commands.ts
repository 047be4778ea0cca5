/** The table of subcommands, in the order in which help lists them. */

import type { Command } from "./command.ts";
import { audit } from "./commands/audit.ts";
import { cancel } from "./commands/cancel.ts";
import { doctor } from "./commands/doctor.ts";
import { jobs } from "./commands/jobs.ts";
import { key } from "./commands/key.ts";
import { languages } from "./commands/languages.ts";
import { logs } from "./commands/logs.ts";
import { replay } from "./commands/replay.ts";
import { run } from "./commands/run.ts";
import { sandbox } from "./commands/sandbox.ts";
import { serve } from "./commands/serve.ts";
import { verify } from "./commands/verify.ts";
import { version } from "./commands/version.ts";
import { worker } from "./commands/worker.ts";

/** Every subcommand. `help`, `--help` and `--version` are served by `execute.ts`. */
export const COMMANDS: readonly Command[] = [
  run,
  serve,
  worker,
  jobs,
  logs,
  cancel,
  replay,
  sandbox,
  verify,
  key,
  audit,
  doctor,
  languages,
  version,
];
