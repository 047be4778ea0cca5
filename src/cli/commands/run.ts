/** `cprg run`: one program in a sandbox, here or on a server. */

import { CLIENT_FLAGS } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { engineFlags } from "../engine-flags.ts";
import { usageError } from "../flags.ts";
import { PLACE_FLAG } from "../place-flag.ts";
import { gatherRequest } from "../run-request.ts";

export const run = defineCommand({
  name: "run",
  aliases: [],
  summary: "Run a program in a sandbox and print its output as it comes",
  help: {
    usage: [
      "[flags] SCRIPT [-- ARG...]",
      "[flags] -c CODE [-- ARG...]",
      "[flags] - < SCRIPT",
      "--server URL [--key KEY] [flags] SCRIPT",
    ],
    description: [
      "Runs one program in a sandbox of its own: no network, no files of this machine but the " +
        "runtime's, limits on everything. Its standard output and error come out byte for byte as " +
        "they are written. The log is in memory; --save keeps it, sealed.",
      "The language is what --lang says, else what a #! line says, else what the file's name says, " +
        "else python. Without --stdin the program reads nothing.",
      "Files that are to outlive the program go to /workspace/out, which it makes itself (mkdir -p out): " +
        "--out copies them to a directory here. On a server they are kept with the job, at " +
        "/v1/jobs/ID/files. They are kept all or not at all, up to 1000 files and 64 MiB.",
      "Exit code: the program's own; 128+n when signal n ended it, 124 when it ran out of time, 137 " +
        "out of memory, 125 when it could not be started, 141 when standard output is closed to what " +
        "it writes, 2 for wrong use.",
      "Ctrl-C asks the program to stop (SIGTERM, then SIGKILL); a second one does not wait.",
    ],
    examples: [
      { line: "cprg run -c 'print(6*7)'", does: "One line of Python" },
      { line: "cprg run script.py -- --verbose input.txt", does: "A script with arguments" },
      {
        line: "cprg run --stdin data.csv --file model.json --timeout 10 --mem 512m script.py",
        does: "Input, a file beside the script, ten seconds, 512 MiB",
      },
      { line: "cprg run --out results plot.py", does: "Keep what it leaves in /workspace/out" },
      { line: "cprg run --save run.ndjson script.py", does: "Keep the log for cprg verify" },
      { line: "cprg run --server http://127.0.0.1:7300 script.py", does: "Run it on a server" },
      {
        line: "cprg run --server http://127.0.0.1:7300 --place gpu=a100 script.py",
        does: "Run it on one of the server's workers",
      },
    ],
  },
  flags: {
    code: { kind: "text", value: "CODE", short: "c", doc: "The program itself" },
    lang: { kind: "text", value: "NAME", short: "l", doc: 'Language; "cprg languages" lists them' },
    stdin: { kind: "text", value: "FILE", doc: "Standard input of the program; - is this one's" },
    file: {
      kind: "list",
      value: "PATH[=DEST]",
      short: "f",
      doc: "Puts a file into /workspace, under its own name or as DEST",
    },
    env: { kind: "list", value: "NAME=VALUE", short: "e", doc: "Sets a variable of the program" },
    limit: {
      kind: "list",
      value: "NAME=N",
      doc: "Sets a limit: wall_seconds, cpu_seconds, cpu_cores, mem_mb, pids, disk_mb, …",
    },
    timeout: { kind: "text", value: "TIME", doc: "Same as --limit wall_seconds; 10, 500ms, 2m" },
    mem: { kind: "text", value: "SIZE", doc: "Same as --limit mem_mb; 512, 512m, 2g" },
    json: {
      kind: "switch",
      doc: "Print the result as JSON at the end, not the output as it comes",
    },
    save: { kind: "text", value: "FILE", doc: "Writes the log, sealed for cprg verify" },
    out: { kind: "text", value: "DIR", doc: "Copies what is left in /workspace/out to DIR" },
    server: { ...CLIENT_FLAGS.server, doc: "Runs it on this server; empty: here" },
    ...PLACE_FLAG,
    key: CLIENT_FLAGS.key,
    ca: CLIENT_FLAGS.ca,
    ...engineFlags(),
    "data-dir": CLIENT_FLAGS["data-dir"],
  },
  arguments: [{ name: "SCRIPT", required: false }],
  takesRest: true,
  async run({ flags, args, rest, terminal }) {
    const request = await gatherRequest(flags, { script: args[0], rest: rest ?? [] }, terminal);
    // Loaded on demand: the engine and its libraries cost start-up time that other commands save.
    if (flags.server === undefined || flags.server === "") {
      if (flags.place.length > 0) throw usageError("Cannot use --place without --server");
      const { runHere } = await import("../run-here.ts");
      return await runHere(request, { flags, terminal });
    }
    const { runThere } = await import("../run-there.ts");
    return await runThere(request, { flags, terminal, server: flags.server });
  },
});
