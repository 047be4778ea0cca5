/** The agent of `cprg demo` without a model: its answers are written here, its work is real. */

import type { AgentModel } from "../control-plane/runners/model-library.js";

/** What the demo asks for, unless told otherwise. */
export const DEMO_PROMPT = "Create a file that lists this machine's OS, then show it.";

interface Step {
  readonly text?: string;
  readonly call?: { readonly name: string; readonly input: object };
}

const STEPS: readonly Step[] = [
  {
    text: "I will look at the machine first.",
    call: { name: "exec", input: { command: "uname -sr" } },
  },
  {
    call: {
      name: "write",
      input: { path: "report/os.sh", content: "printf 'os: %s\\n' \"$(uname -s)\"\n" },
    },
  },
  { call: { name: "edit", input: { path: "report/os.sh", old: "uname -s", new: "uname -sr" } } },
  { call: { name: "exec", input: { command: "sh report/os.sh > report/os.txt" } } },
  { call: { name: "read", input: { path: "report/os.txt" } } },
];

/** A model that goes through the script, whatever it is told, and ends with what it read last. */
export function scriptedModel(): AgentModel {
  let at = 0;
  return {
    specificationVersion: "v3",
    provider: "cprg",
    modelId: "script",
    supportedUrls: {},
    doGenerate: async ({
      prompt,
    }: {
      readonly prompt: readonly { readonly content: unknown }[];
    }) => {
      const step = STEPS[at];
      at += 1;
      return answer(step ?? { text: `report/os.txt says: ${lastOutput(prompt)}` }, at);
    },
  } as AgentModel;
}

function answer({ text, call }: Step, at: number) {
  const counted = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0, text: 1, reasoning: 0 };
  const spoken = text === undefined ? [] : [{ type: "text", text }];
  const called =
    call === undefined
      ? []
      : [
          {
            type: "tool-call",
            toolCallId: `call-${at}`,
            toolName: call.name,
            input: JSON.stringify(call.input),
          },
        ];
  const unified = call === undefined ? "stop" : "tool-calls";
  return {
    content: [...spoken, ...called],
    finishReason: { unified, raw: unified },
    usage: { inputTokens: counted, outputTokens: counted },
    warnings: [],
  };
}

/** The text that the last tool gave, from the library's message. */
function lastOutput(prompt: readonly { readonly content: unknown }[]): string {
  const content = prompt.at(-1)?.content;
  const part: unknown = Array.isArray(content) ? content.at(-1) : undefined;
  const { output } = (part ?? {}) as { output?: { value?: unknown } };
  return String(output?.value ?? "").trim();
}
