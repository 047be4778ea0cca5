/** `cprg version`. */

import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { jsonText } from "../output.ts";
import { VERSION } from "../version.ts";

export const version = defineCommand({
  name: "version",
  aliases: [],
  summary: "Print the version",
  help: {
    usage: ["[--json]"],
    description: ["Prints the version of cprg, and with --json those of what it is built on."],
    examples: [
      { line: "cprg version", does: "The version" },
      { line: "cprg version --json", does: "The version, the runtime's and the platform" },
    ],
  },
  flags: {
    json: { kind: "switch", doc: "Print JSON" },
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    const text = flags.json
      ? jsonText({
          version: VERSION,
          bun: Bun.version,
          platform: process.platform,
          arch: process.arch,
        })
      : `cprg ${VERSION}\n`;
    await terminal.stdout.write(text);
    return EXIT.ok;
  },
});
