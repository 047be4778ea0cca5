/** `cprg doctor`: what this host has of each layer, and how to mend what is missing. */

import { JSON_FLAG } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { engineFlags } from "../engine-flags.ts";

export const doctor = defineCommand({
  name: "doctor",
  aliases: [],
  summary: "Show which layers of a sandbox this host can give, and how to mend the rest",
  help: {
    usage: ["[--json]"],
    description: [
      "Looks at the kernel, the user, control groups and namespaces, and runs a program in a sandbox. " +
        "What is missing is shown with the exact fix. Exit code 0: sandboxes work here; 1: something " +
        "that they cannot do without is missing.",
    ],
    examples: [
      { line: "cprg doctor", does: "Can this host run sandboxes" },
      { line: "cprg doctor --json | jq '.layers[] | select(.ok | not)'", does: "What is missing" },
    ],
  },
  flags: { ...JSON_FLAG, ...engineFlags() },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    // Loaded on demand: the engine costs start-up time that other commands save.
    const { diagnoseHost } = await import("../diagnose-host.ts");
    return await diagnoseHost(flags, terminal);
  },
});
