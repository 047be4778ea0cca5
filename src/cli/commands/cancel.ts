/** `cprg cancel`: asks a server to end a job. */

import { asAnswer, asText } from "../answers.ts";
import { requestJson } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, parseJobId, serverAccess } from "../client-flags.ts";
import { jobPath } from "../client-stream.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { jsonText, printable } from "../output.ts";

/** A cancel takes the job's own grace and what killing the rest needs. */
const CANCEL_TIMEOUT_MS = 120_000;

export const cancel = defineCommand({
  name: "cancel",
  aliases: [],
  summary: "Cancel a queued or running job",
  help: {
    usage: ["ID"],
    description: [
      "Sends SIGTERM to the job's program and, after its grace, kills all its processes. Prints the " +
        "status when the job has ended. A job that had ended before is an error (exit code 1).",
    ],
    examples: [{ line: "cprg cancel 0197a3f0-1111-7222-8333-444455556666", does: "End a job" }],
  },
  flags: { ...JSON_FLAG, ...CLIENT_FLAGS },
  arguments: [{ name: "ID", required: true }],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const id = parseJobId(args[0]);
    const access = await serverAccess(flags, terminal);
    const { status, body } = await requestJson(access, {
      method: "DELETE",
      path: jobPath(id),
      timeoutMs: CANCEL_TIMEOUT_MS,
    });
    const ending = status === 202 ? " (still ending)" : "";
    const word = printable(asText(asAnswer(body)["status"], "?"));
    await terminal.stdout.write(flags.json ? jsonText(body) : `${id} ${word}${ending}\n`);
    return EXIT.ok;
  },
});
