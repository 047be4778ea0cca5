/** `cprg audit`: the audit log of a server, sealed. */

import { download } from "../client.ts";
import { CLIENT_FLAGS, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { printable } from "../output.ts";
import { writeWhole } from "../save-export.ts";

/** A log of years is large. */
const AUDIT_TIMEOUT_MS = 3_600_000;

export const audit = defineCommand({
  name: "audit",
  aliases: [],
  summary: "Export the audit log of a server: who did what",
  help: {
    usage: ["[--export FILE]"],
    description: [
      "Prints the audit log in NDJSON, or writes it to a file that appears only when it is whole: " +
        "keys made and revoked, jobs and sandboxes begun and ended by hand, refused requests, starts " +
        "and stops. It ends in the server's seal, which cprg verify checks. Needs an administrator's key.",
    ],
    examples: [
      { line: "cprg audit --export audit.ndjson", does: "Keep the sealed log" },
      {
        line: "cprg audit | jq -r 'select(.data.action == \"key.create\") | .at'",
        does: "When keys were made",
      },
    ],
  },
  flags: {
    export: { kind: "text", value: "FILE", doc: "Writes the log to a file" },
    ...CLIENT_FLAGS,
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    const access = await serverAccess(flags, terminal);
    const request = { path: "/v1/audit", timeoutMs: AUDIT_TIMEOUT_MS };
    const path = flags.export;
    if (path === undefined) {
      await download(access, request, async (bytes) => await terminal.stdout.write(bytes));
      return EXIT.ok;
    }
    await writeWhole(path, async (write) => await download(access, request, write));
    await terminal.stderr.write(`exported to ${printable(path)}\n`);
    return EXIT.ok;
  },
});
