/**
 * The model behind an agent: from a name such as `openai:gpt-5` to the library's object. The key is
 * used here, in the control plane's process, and goes to the model's server alone.
 */

import { CprgError, invalid } from "../../core/errors.ts";
import { type AgentModel, loadOpenAI, loadOpenAICompatible } from "./model-library.js";

/** Bytes of one answer of a model's server. */
export const MODEL_ANSWER_BYTES_MAX = 8 * 1024 * 1024;

/** How a model that is named is reached. */
export interface ModelAccess {
  /** Of the model's server; its default is OpenAI's for `openai:`, and there is none for others. */
  readonly baseUrl?: string;
  readonly apiKey?: string;
}

/** What a name of a model says. */
export interface ModelName {
  readonly provider: "openai" | "compatible";
  readonly model: string;
}

/** Reads `openai:MODEL` or `compatible:MODEL`. @throws CprgError `invalid_argument` */
export function parseModelName(text: string): ModelName {
  const end = text.indexOf(":");
  const provider = text.slice(0, end);
  const model = text.slice(end + 1);
  if ((provider === "openai" || provider === "compatible") && /^[\x21-\x7e]{1,128}$/.test(model)) {
    return { provider, model };
  }
  throw invalid(
    "model",
    `Cannot use model "${text.slice(0, 64)}": not the name of one`,
    "openai:MODEL, or compatible:MODEL with a base URL of a server that speaks OpenAI's protocol",
  );
}

/**
 * Checks how a model is reached, without reaching it.
 *
 * @throws CprgError `invalid_argument` naming what is wrong or missing
 */
export function checkModelAccess(name: ModelName, { baseUrl, apiKey }: ModelAccess): void {
  if (baseUrl !== undefined) checkBaseUrl(baseUrl);
  else if (name.provider === "compatible") {
    throw invalid("baseUrl", `Cannot reach compatible:${name.model}: no base URL is set`);
  }
  if (name.provider === "openai" && (apiKey === undefined || apiKey === "")) {
    throw invalid("apiKey", `Cannot reach openai:${name.model}: no key is set`);
  }
}

/** Opens a named model; loads the library. @throws CprgError `invalid_argument` */
export async function openModel(text: string, access: ModelAccess): Promise<AgentModel> {
  const name = parseModelName(text);
  checkModelAccess(name, access);
  const { apiKey, baseUrl } = access;
  const key = apiKey === undefined || apiKey === "" ? {} : { apiKey };
  if (name.provider === "openai") {
    const createOpenAI = await loadOpenAI();
    const server = baseUrl === undefined ? {} : { baseURL: baseUrl };
    return createOpenAI({ ...key, ...server, fetch: boundedFetch }).chat(name.model);
  }
  const createOpenAICompatible = await loadOpenAICompatible();
  const server = { name: "compatible", baseURL: baseUrl ?? "" };
  return createOpenAICompatible({ ...server, ...key, fetch: boundedFetch })(name.model);
}

function checkBaseUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
  if (isWeb && url?.username === "" && url.password === "") return;
  throw invalid("baseUrl", "Cannot use the model's base URL: not http://HOST or https://HOST");
}

/** Follows no redirect, which could take the key elsewhere, and reads no answer without end. */
async function boundedFetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(input, { ...init, redirect: "error" });
  if (response.body === null) return response;
  const { status, statusText, headers } = response;
  return new Response(bounded(response.body), { status, statusText, headers });
}

function bounded(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let left = MODEL_ANSWER_BYTES_MAX;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      left -= value.length;
      if (left >= 0) return controller.enqueue(value);
      await reader.cancel().catch(() => undefined);
      controller.error(answerTooLarge());
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

function answerTooLarge(): CprgError {
  const message = `The model's server sent more than ${MODEL_ANSWER_BYTES_MAX} bytes in one answer`;
  return new CprgError("resource_exhausted", message, {
    reason: "MODEL_ANSWER_TOO_LARGE",
    retryable: false,
  });
}
