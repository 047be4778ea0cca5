/** `cprg control-plane`: tasks for workers over HTTP; nothing runs on this host. */

import { defineCommand } from "../command.ts";
import { settingFlags } from "../config.ts";
import { SETTING_NAMES, type SettingName } from "../config-table.ts";

/** Settings of what runs on this host alone. */
const OF_ENGINE: readonly SettingName[] = [
  "runDir",
  "jobSlots",
  "tenantConcurrency",
  "tenantSandboxes",
  "tenantSandboxPercent",
  "queueMax",
  "queueTenantMax",
  "pool",
  "sandbox",
  "allowMissing",
  "seccomp",
  "seccompAllow",
  "seccompUnsafe",
  "binds",
  "cgroup",
  "python",
  "node",
  "bash",
  "ceilings",
];

export const controlPlane = defineCommand({
  name: "control-plane",
  aliases: [],
  summary: "Serve the HTTP API for tasks, and the bridge for the workers that do them",
  help: {
    usage: ["[flags]", "--check [--json]"],
    description: [
      "Listens for workers at --bridge-addr, 127.0.0.1:7600 unless told otherwise, and for tasks at " +
        "--addr. A task waits until a worker of its tenant with its labels is free; then its runner " +
        "drives that worker. Nothing runs on this host: no sandbox is opened, and what would need " +
        "one is answered 501.",
      "Workers dial out to it with a token of cprg token mint. One bearer for all of them, " +
        "CPRG_BRIDGE_TOKEN, is taken from this host alone, unless --allow-shared-token is given; it " +
        "cannot be revoked singly.",
      "The agent runner is off unless --agent-model names a model; then every key may use it, within " +
        "the budget of --agent-steps, --agent-wall-seconds and --agent-tokens. The model's key, " +
        "CPRG_AGENT_KEY, stays in this process.",
      "Keys, settings and signals are as of cprg serve, which does this too with --bridge-addr.",
    ],
    examples: [
      { line: "cprg control-plane", does: "HTTP on 127.0.0.1:7300, workers on 127.0.0.1:7600" },
      {
        line: "cprg control-plane --bridge-addr :7600 --bridge-tls-cert c.pem --bridge-tls-key k.pem",
        does: "Workers of other hosts, over TLS",
      },
      {
        line: "CPRG_AGENT_KEY=$OPENAI_API_KEY cprg control-plane --agent-model openai:gpt-5",
        does: "Agents too",
      },
    ],
  },
  flags: {
    check: { kind: "switch", doc: "Print the effective settings, without secrets, and exit" },
    json: { kind: "switch", doc: "With --check: print JSON" },
    ...settingFlags(SETTING_NAMES.filter((name) => !OF_ENGINE.includes(name))),
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    // Loaded on demand: the server's libraries cost start-up time that other commands save.
    const { serveHere } = await import("../serve-here.ts");
    return await serveHere("control-plane", flags, terminal);
  },
});
