import type { z } from "zod";

/** A language model of the `ai` library (its LanguageModelV3), as far as it is known here. */
export interface AgentModel {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  doGenerate(options: never): PromiseLike<unknown>;
}

/** A message of a conversation; the library makes and reads those that are not our own. */
export type AgentMessage =
  | { readonly role: "user"; readonly content: string }
  | { readonly role: "assistant" | "tool"; readonly content: unknown };

/** What a model can call. */
export type AgentToolSet = Readonly<
  Record<
    string,
    {
      readonly description: string;
      readonly inputSchema: z.ZodType;
      execute(input: never): Promise<string>;
    }
  >
>;

/** What a model is asked. */
export interface Question {
  readonly model: AgentModel;
  readonly system: string;
  readonly messages: readonly AgentMessage[];
  readonly tools: AgentToolSet;
  readonly maxRetries: number;
  readonly maxOutputTokens: number;
  readonly abortSignal: AbortSignal;
}

/** What it answers, once the calls in it are done. */
export interface Answer {
  readonly text: string;
  readonly finishReason: string;
  readonly toolCalls: readonly { readonly toolName: string; readonly invalid?: boolean }[];
  readonly usage: { readonly totalTokens: number | undefined };
  readonly response: { readonly messages: readonly AgentMessage[] };
}

type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

interface ServerSettings {
  readonly baseURL?: string;
  readonly apiKey?: string;
  readonly fetch: Fetch;
}

export function loadAsking(): Promise<(question: Question) => Promise<Answer>>;

export function loadOpenAI(): Promise<
  (settings: ServerSettings) => { chat(model: string): AgentModel }
>;

export function loadOpenAICompatible(): Promise<
  (settings: ServerSettings & { readonly name: string }) => (model: string) => AgentModel
>;
