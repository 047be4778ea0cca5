/** The table of subcommands, in the order in which help lists them. */

import type { Command } from "./command.ts";
import { audit } from "./commands/audit.ts";
import { cancel } from "./commands/cancel.ts";
import { controlPlane } from "./commands/control-plane.ts";
import { demo } from "./commands/demo.ts";

import { doctor } from "./commands/doctor.ts";
import { jobs } from "./commands/jobs.ts";
import { key } from "./commands/key.ts";
import { languages } from "./commands/languages.ts";
import { logs } from "./commands/logs.ts";
import { replay } from "./commands/replay.ts";
import { run } from "./commands/run.ts";
import { sandbox } from "./commands/sandbox.ts";
import { serve } from "./commands/serve.ts";
import { tasks } from "./commands/tasks.ts";
import { token } from "./commands/token.ts";
import { verify } from "./commands/verify.ts";
import { version } from "./commands/version.ts";
import { worker } from "./commands/worker.ts";
import { workers } from "./commands/workers.ts";

/** Every subcommand. `help`, `--help` and `--version` are served by `execute.ts`. */
export const COMMANDS: readonly Command[] = [
  run,
  serve,
  controlPlane,
  worker,
  jobs,
  logs,
  cancel,
  replay,
  sandbox,
  tasks,
  workers,
  token,
  verify,
  key,
  audit,
  doctor,
  languages,
  demo,

  version,
];
