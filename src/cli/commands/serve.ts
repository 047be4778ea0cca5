/** `cprg serve`: the HTTP API in front of sandboxes on this host. */

import { defineCommand } from "../command.ts";
import { settingFlags } from "../config.ts";

export const serve = defineCommand({
  name: "serve",
  aliases: ["server"],
  summary: "Serve the HTTP API and run jobs in sandboxes on this host",
  help: {
    usage: ["[flags]", "--check [--json]"],
    description: [
      "Listens for jobs, runs each in a sandbox of its own, and keeps their events in a hash-chained " +
        "log. Without a key and on a loopback address it makes a random admin key at its first " +
        "start, keeps it in the data directory (mode 0600) and prints it once; on any other address, " +
        "or in production, it refuses to start without a key or without a sandbox. Keys come in CPRG_API_KEYS and " +
        "CPRG_ADMIN_KEYS, as [[keys]] in the file, or from cprg key create.",
      "Settings come from flags, then CPRG_ variables, then the TOML file of --config, whose keys are " +
        "the flags' names with _ for -. --check prints the effective values and starts nothing.",
      "With --bridge-addr it takes workers too, and tasks for them at /v1/tasks; cprg control-plane does " +
        "only that. Workers come with a token of cprg token mint, or with the one of CPRG_BRIDGE_TOKEN.",
      "As root it first gives up every capability that sandboxes do not need, for which it executes " +
        "itself again; cprg doctor says what is left.",
      "SIGTERM stops it: no new jobs, a grace for running ones, their ends written. A second one does " +
        "not wait.",
    ],
    examples: [
      { line: "cprg serve", does: "Serve on http://127.0.0.1:7300" },
      {
        line: "cprg serve --addr 127.0.0.1:0 --job-slots 8",
        does: "A free port, eight jobs at once",
      },
      {
        line: "cprg serve --bridge-addr 127.0.0.1:7600",
        does: "Take workers and tasks too",
      },
      {
        line: "cprg serve --config cprg.toml --check",
        does: "See what a configuration amounts to",
      },
    ],
  },
  flags: {
    check: { kind: "switch", doc: "Print the effective settings, without secrets, and exit" },
    json: { kind: "switch", doc: "With --check: print JSON" },
    ...settingFlags(),
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    // Loaded on demand: the server's libraries cost start-up time that other commands save.
    const { serveHere } = await import("../serve-here.ts");
    return await serveHere("serve", flags, terminal);
  },
});
