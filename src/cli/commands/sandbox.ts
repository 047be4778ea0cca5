/** `cprg sandbox`: sandboxes that a server holds open. One file of `sandbox-*.ts` for each action. */

import { CLIENT_FLAGS, JSON_FLAG } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { usageError } from "../flags.ts";
import { PLACE_FLAG } from "../place-flag.ts";
import { copyFiles } from "../sandbox-copy.ts";
import { createSandbox } from "../sandbox-create.ts";
import { execInSandbox } from "../sandbox-exec.ts";
import { listSandboxes, removeSandbox } from "../sandbox-list.ts";
import { shellInSandbox } from "../sandbox-shell.ts";
import { nearest } from "../suggest.ts";

const ACTIONS = {
  create: createSandbox,
  list: listSandboxes,
  exec: execInSandbox,
  shell: shellInSandbox,
  cp: copyFiles,
  rm: removeSandbox,
} as const;

export const sandbox = defineCommand({
  name: "sandbox",
  aliases: [],
  summary: "Open sandboxes on a server, run programs in them, move files",
  help: {
    usage: [
      "create [--idle SECONDS] [--lifetime SECONDS] [--limit NAME=N]... [--place NAME=VALUE]...",
      "list [--all]",
      "exec [--stdin] [--env NAME=VALUE]... [--limit NAME=N]... SANDBOX -- PROGRAM [ARG...]",
      "shell [SANDBOX] [-- PROGRAM [ARG...]]",
      "cp SOURCE SANDBOX:DESTINATION | SANDBOX:SOURCE DESTINATION",
      "rm SANDBOX",
    ],
    description: [
      "A sandbox keeps its files and its limits while programs come and go in it. It ends when " +
        "nothing has run or moved for its idle time, after its lifetime, with the server, or by rm. " +
        "create prints its id. With --place it is on a worker of the server, and ends with the " +
        "worker's claim too.",
      "exec passes the program's output on byte for byte, with --stdin this command's input to it, " +
        "and ends with its exit code, as cprg run does. Ctrl-C asks it to stop.",
      "shell gives a program (default: bash) this terminal: its keys, its size, its colours. Without " +
        "a SANDBOX it opens one and removes it afterwards.",
      "cp moves a file or a tree with its modes and links. The destination is the new name itself; " +
        "one that ends with a slash is the directory to put it into. Paths in a sandbox are relative " +
        "to /workspace. A link that leads out of what is copied is refused.",
    ],
    examples: [
      {
        line: "cprg sandbox create --idle 3600 --limit mem_mb=1024",
        does: "Open one, print its id",
      },
      {
        line: "cprg sandbox create --place gpu=a100",
        does: "Open one on a worker that has the label",
      },
      {
        line: "cprg sandbox cp src 0197a3f0-1111-7222-8333-444455556666:src",
        does: "A tree into it",
      },
      {
        line: "cprg sandbox exec 0197a3f0-1111-7222-8333-444455556666 -- python3 src/main.py",
        does: "Run a program in it",
      },
      { line: "cprg sandbox shell", does: "A shell in a sandbox that goes with it" },
      {
        line: "cprg sandbox list --json | jq -r '.sandboxes[].sandbox_id'",
        does: "Ids for a script",
      },
      { line: "cprg sandbox rm 0197a3f0-1111-7222-8333-444455556666", does: "End it" },
    ],
  },
  flags: {
    idle: { kind: "text", value: "SECONDS", doc: "End it when nothing happens for so long" },
    lifetime: { kind: "text", value: "SECONDS", doc: "End it after so long, whatever happens" },
    limit: { kind: "list", value: "NAME=N", doc: "Sets a limit; may be given several times" },
    env: { kind: "list", value: "NAME=VALUE", short: "e", doc: "Sets a variable" },
    label: { kind: "list", value: "NAME=VALUE", doc: "Labels a sandbox" },
    ...PLACE_FLAG,
    stdin: { kind: "switch", doc: "Pass this command's standard input to the program" },
    all: { kind: "switch", doc: "List those that have ended too" },
    ...JSON_FLAG,
    ...CLIENT_FLAGS,
  },
  arguments: [
    { name: "ACTION", required: true },
    { name: "SANDBOX", required: false },
    { name: "DESTINATION", required: false },
  ],
  takesRest: true,
  async run({ flags, args, rest, terminal }) {
    const [name = "", ...others] = args;
    if (!Object.hasOwn(ACTIONS, name)) {
      const near = nearest(name, Object.keys(ACTIONS));
      throw usageError(
        `Cannot run "cprg sandbox ${name}": unknown`,
        near === null ? `Known: ${Object.keys(ACTIONS).join(", ")}` : `Did you mean ${near}?`,
      );
    }
    return await ACTIONS[name as keyof typeof ACTIONS]({ flags, args: others, rest, terminal });
  },
});
