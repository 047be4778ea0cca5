/** `cprg logs`: a job's output, as recorded or live. */

import { asAnswer, asAnswers } from "../answers.ts";
import { requestJson } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, parseJobId, serverAccess } from "../client-flags.ts";
import { jobPath, parseFrame, type StreamedEvent, streamEvents } from "../client-stream.ts";
import { defineCommand } from "../command.ts";
import { printEvent } from "../event-output.ts";
import { EXIT } from "../exit-code.ts";

export const logs = defineCommand({
  name: "logs",
  aliases: [],
  summary: "Print the output of a job, live with -f",
  help: {
    usage: ["[-f] ID"],
    description: [
      "Prints what the job wrote so far, byte for byte: its standard output to standard output, its " +
        "standard error to standard error. With -f it goes on until the job has ended.",
      "With --json it prints the events instead, one a line.",
    ],
    examples: [
      { line: "cprg logs -f 0197a3f0-1111-7222-8333-444455556666", does: "Follow a job" },
      {
        line: "cprg logs --json 0197a3f0-1111-7222-8333-444455556666 | tail -n 1",
        does: "How it ended",
      },
    ],
  },
  flags: {
    follow: { kind: "switch", short: "f", doc: "Go on until the job has ended" },
    ...JSON_FLAG,
    ...CLIENT_FLAGS,
  },
  arguments: [{ name: "ID", required: true }],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const jobId = parseJobId(args[0]);
    const access = await serverAccess(flags, terminal);
    const events = flags.follow
      ? streamEvents(access, { path: jobPath(jobId), fromSeq: 1 })
      : recorded(await requestJson(access, { path: `${jobPath(jobId)}/replay` }));
    for await (const event of events) {
      if (flags.json) await terminal.stdout.write(`${JSON.stringify(event)}\n`);
      else await printEvent(event, terminal);
    }
    return EXIT.ok;
  },
});

function* recorded(answer: { readonly body: unknown }): Generator<StreamedEvent> {
  for (const event of asAnswers(asAnswer(answer.body)["events"])) {
    yield* parseFrame(JSON.stringify(event));
  }
}
