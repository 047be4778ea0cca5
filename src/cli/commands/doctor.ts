/** `cprg doctor`: what this host has of each layer, how to mend what is missing, and the proof. */

import { JSON_FLAG } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { engineFlags } from "../engine-flags.ts";
import { usageError } from "../flags.ts";

export const doctor = defineCommand({
  name: "doctor",
  aliases: [],
  summary: "Show which layers of a sandbox this host can give, and how to mend the rest",
  help: {
    usage: ["[--json]", "--attack [--layer NAME]... [--json]"],
    description: [
      "Looks at the kernel, the user, control groups and namespaces, and runs a program in a sandbox. " +
        "What is missing is shown with the exact fix. Exit code 0: sandboxes work here; 1: something " +
        "that they cannot do without is missing.",
      "With --attack it runs hostile programs in sandboxes of this host instead, one after the other, " +
        "and judges each from outside: files with random content that it plants in /tmp, /run and " +
        "other places and removes again, host pids, control groups, sockets. It prints what was tried " +
        "and what was seen. Exit code 0: every attack of every layer was held off; 1: one was not, or " +
        "a layer is not in force here and its attacks were not tried.",
    ],
    examples: [
      { line: "cprg doctor", does: "Can this host run sandboxes" },
      { line: "cprg doctor --attack", does: "Prove that sandboxes hold on this host" },
      {
        line: "cprg doctor --attack --layer seccomp --layer network",
        does: "Attack two layers alone",
      },
      { line: "cprg doctor --json | jq '.layers[] | select(.ok | not)'", does: "What is missing" },
    ],
  },
  flags: {
    attack: { kind: "switch", doc: "Attack sandboxes of this host and say which layers hold" },
    layer: {
      kind: "list",
      value: "NAME",
      doc: "With --attack, this layer alone: root, identity, namespaces, cgroup, rlimits, seccomp, descriptors, environment, network, termination or limits",
    },
    ...JSON_FLAG,
    ...engineFlags(),
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    // Loaded on demand: the engine costs start-up time that other commands save.
    if (flags.attack) {
      const { attackHost } = await import("../attack-host.ts");
      return await attackHost({ flags, layers: flags.layer, isJson: flags.json }, terminal);
    }
    if (flags.layer.length > 0) {
      throw usageError("Cannot use --layer without --attack", "cprg doctor --attack --layer NAME");
    }
    const { diagnoseHost } = await import("../diagnose-host.ts");
    return await diagnoseHost(flags, terminal);
  },
});
