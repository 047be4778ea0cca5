// A server that speaks as much of OpenAI's chat completions as an agent uses: real HTTP on a free
// port, with answers that a test writes.

/** The key that it takes. */
export const MODEL_KEY = "sk-of-the-test-0123456789abcdef";

/** One request, as it came. */
export interface ModelRequest {
  readonly authorization: string | null;
  readonly body: {
    readonly model: string;
    readonly messages: readonly { readonly role: string; readonly content: unknown }[];
    readonly tools?: readonly { readonly function: { readonly name: string } }[];
    readonly max_tokens?: number;
    readonly max_completion_tokens?: number;
  };
}

/** A call of a tool: input as JSON, or text that is none. */
export interface ModelCall {
  readonly name: string;
  readonly input: object | string;
}

/** What it answers. */
export interface ModelAnswer {
  readonly text?: string;
  readonly calls?: readonly ModelCall[];
  readonly finish?: string;
  /** Tokens of this answer with its request; null: it counts none. */
  readonly tokens?: number | null;
}

export interface ModelServer extends AsyncDisposable {
  /** As a base URL. */
  readonly url: string;
  readonly requests: readonly ModelRequest[];
}

/** Starts one; a key that is not {@link MODEL_KEY} is refused before the script is asked. */
export function startModelServer(
  script: (request: ModelRequest, index: number) => ModelAnswer | Response | Promise<Response>,
): ModelServer {
  const requests: ModelRequest[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      if (new URL(request.url).pathname !== "/v1/chat/completions") {
        return failure(404, "no such path");
      }
      const authorization = request.headers.get("authorization");
      const body = (await request.json()) as ModelRequest["body"];
      const index = requests.push({ authorization, body }) - 1;
      if (authorization !== `Bearer ${MODEL_KEY}`) {
        return failure(401, `Incorrect API key provided: ${authorization?.slice(7)}`);
      }
      const answer = await script({ authorization, body }, index);
      return answer instanceof Response ? answer : completion(answer, index);
    },
  });
  return {
    url: `${server.url.origin}/v1`,
    requests,
    [Symbol.asyncDispose]: async () => await server.stop(true),
  };
}

/** An answer that says so and ends. */
export function says(text: string): ModelAnswer {
  return { text };
}

/** An answer that calls one tool. */
export function calls(name: string, input: object | string): ModelAnswer {
  return { calls: [{ name, input }] };
}

/** An error as the protocol has it. */
export function failure(
  status: number,
  message: string,
  headers: Record<string, string> = {},
): Response {
  return Response.json({ error: { message, type: "error", code: null } }, { status, headers });
}

function completion({ text, calls = [], finish, tokens = 10 }: ModelAnswer, index: number) {
  const toolCalls = calls.map(({ name, input }, at) => ({
    id: `call-${index}-${at}`,
    type: "function",
    function: { name, arguments: typeof input === "string" ? input : JSON.stringify(input) },
  }));
  return Response.json({
    id: `answer-${index}`,
    object: "chat.completion",
    created: 1_700_000_000,
    model: "test-model",
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: text ?? null,
          ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
        },
        finish_reason: finish ?? (toolCalls.length === 0 ? "stop" : "tool_calls"),
      },
    ],
    ...(tokens === null
      ? {}
      : { usage: { prompt_tokens: tokens - 1, completion_tokens: 1, total_tokens: tokens } }),
  });
}
