/** `cprg replay`: the whole event log of a job, for people, for programs, or sealed. */

import { type Answer, asAnswer, asAnswers, asNumber, asText } from "../answers.ts";
import { requestJson } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, parseJobId, serverAccess } from "../client-flags.ts";
import { jobPath } from "../client-stream.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { type Cell, type Colour, jsonText, paintFor, printable, table } from "../output.ts";
import { saveExport } from "../save-export.ts";

/** Characters of an event's content on one line of the table. */
const SHOWN_CHARS = 100;

const COLOURS: Readonly<Record<string, Colour>> = {
  stderr: "yellow",
  limit: "red",
  violation: "red",
  truncated: "yellow",
  finished: "bold",
};

export const replay = defineCommand({
  name: "replay",
  aliases: [],
  summary: "Show or export the event log of a job",
  help: {
    usage: ["ID [--json]", "ID --export FILE"],
    description: [
      "Shows every event of a job with the time since it was queued: what was in force, what it " +
        "wrote, which limits it hit, how it ended.",
      "With --export the log is written to a file with the server's seal, which cprg verify checks.",
    ],
    examples: [
      { line: "cprg replay 0197a3f0-1111-7222-8333-444455556666", does: "What happened, in order" },
      {
        line: "cprg replay 0197a3f0-1111-7222-8333-444455556666 --export run.ndjson",
        does: "Keep the sealed log",
      },
    ],
  },
  flags: {
    export: { kind: "text", value: "FILE", doc: "Writes the sealed log to a file" },
    ...JSON_FLAG,
    ...CLIENT_FLAGS,
  },
  arguments: [{ name: "ID", required: true }],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const id = parseJobId(args[0]);
    const access = await serverAccess(flags, terminal);
    if (flags.export !== undefined) {
      await saveExport(access, id, flags.export);
      await terminal.stderr.write(`exported to ${printable(flags.export)}\n`);
      return EXIT.ok;
    }
    const { body } = await requestJson(access, { path: `${jobPath(id)}/replay` });
    if (flags.json) await terminal.stdout.write(jsonText(body));
    else {
      const events = asAnswers(asAnswer(body)["events"]);
      const start = Date.parse(asText(events[0]?.["at"]));
      const rows = events.map((event) => eventRow(event, start));
      const paint = paintFor(terminal.stdout, terminal.env);
      await terminal.stdout.write(table(["SEQ", "AFTER", "EVENT", "CONTENT"], rows, paint));
    }
    return EXIT.ok;
  },
});

function eventRow(event: Answer, start: number): Cell[] {
  const kind = asText(event["kind"], "?");
  const after = Date.parse(asText(event["at"])) - start;
  const colour = COLOURS[kind];
  return [
    String(asNumber(event["seq"]) ?? "?"),
    Number.isFinite(after) ? `${(after / 1000).toFixed(3)} s` : "",
    colour === undefined ? kind : { text: kind, colour },
    contentText(event),
  ];
}

function contentText(event: Answer): string {
  const data = event["data"];
  const text =
    typeof data === "string" ? outputText(data, event["encoding"]) : JSON.stringify(data);
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

/** Quoted, because blanks and line ends matter. */
function outputText(text: string, encoding: unknown): string {
  return encoding === "base64" ? `base64 ${text}` : JSON.stringify(text);
}
