// What is used of the `ai` library, loaded when an agent starts and not before: it is large. Its
// types do not pass the checks of this project; model-library.d.ts says as much of them as is used.

/** Loads what asks a model for an answer. */
export async function loadAsking() {
  const { generateText } = await import("ai");
  // The library's own warnings go to standard error, past the log.
  globalThis.AI_SDK_LOG_WARNINGS = false;
  return generateText;
}

/** Loads what reaches OpenAI's server. */
export async function loadOpenAI() {
  return (await import("@ai-sdk/openai")).createOpenAI;
}

/** Loads what reaches servers that speak OpenAI's protocol. */
export async function loadOpenAICompatible() {
  return (await import("@ai-sdk/openai-compatible")).createOpenAICompatible;
}
