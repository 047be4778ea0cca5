/** `cprg languages`: what a server, or this host, can run. */

import { asAnswer, asAnswers, asText } from "../answers.ts";
import { requestJson } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { jsonText, paintFor, table } from "../output.ts";

export const languages = defineCommand({
  name: "languages",
  aliases: [],
  summary: "List the languages that a server can run",
  help: {
    usage: ["[--json]"],
    description: ["Lists the languages of the server's host with the version that runs there."],
    examples: [
      { line: "cprg languages", does: "Languages of the server on this host" },
      { line: "cprg languages --server https://cprg.example", does: "Those of another" },
    ],
  },
  flags: { ...JSON_FLAG, ...CLIENT_FLAGS },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    const access = await serverAccess(flags, terminal);
    const { body } = await requestJson(access, { path: "/v1/languages" });
    const rows = asAnswers(asAnswer(body)["languages"]).map((language) => [
      asText(language["name"], "?"),
      asText(language["version"]),
      asText(language["executable"]),
    ]);
    const paint = paintFor(terminal.stdout, terminal.env);
    const text = flags.json
      ? jsonText(body)
      : table(["LANGUAGE", "VERSION", "PROGRAM"], rows, paint);
    await terminal.stdout.write(text);
    return EXIT.ok;
  },
});
