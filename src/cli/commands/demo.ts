/** `cprg demo`: control plane, worker and agent in one go, offline unless a model is named. */

import { defineCommand } from "../command.ts";

export const demo = defineCommand({
  name: "demo",
  aliases: [],
  summary: "Show a control plane, a worker and an agent at work, offline",
  help: {
    usage: ["[PROMPT]", "--model NAME [--base-url URL] [PROMPT]"],
    description: [
      "Starts a control plane in this process and one worker in another, which dials out to it with a " +
        "minted token; submits a task to the agent, prints what it does, and takes everything away " +
        "again. Without --model the agent follows a script and needs no network.",
      "With --model a real model does the task: openai:MODEL, or compatible:MODEL with --base-url. Its " +
        "key comes in CPRG_AGENT_KEY and stays in this process. The programs of a real model run in " +
        "sandboxes; --isolate off lets them run as this user, in a temporary directory.",
    ],
    examples: [
      { line: "cprg demo", does: "Offline, in a few seconds" },
      {
        line: "CPRG_AGENT_KEY=$OPENAI_API_KEY cprg demo --model openai:gpt-5",
        does: "With a real model",
      },
    ],
  },
  flags: {
    model: {
      kind: "text",
      value: "NAME",
      env: "CPRG_AGENT_MODEL",
      doc: "A model instead of the script",
    },
    "base-url": {
      kind: "text",
      value: "URL",
      env: "CPRG_AGENT_BASE_URL",
      doc: "Where the model is; default: OpenAI's, for openai:MODEL",
    },
    isolate: {
      kind: "text",
      value: "MODE",
      doc: "Where programs run: auto, ns, rootless, or off; default auto with a model, else off",
    },
  },
  arguments: [{ name: "PROMPT", required: false }],
  takesRest: false,
  async run({ flags, args, terminal }) {
    // Loaded on demand: it brings a control plane.
    const { demoHere } = await import("../demo-here.ts");
    return await demoHere({ ...flags, prompt: args[0] }, terminal);
  },
});
