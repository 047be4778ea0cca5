/**
 * A runner that lets a model work in a claimed lease: it asks for an answer, does what the answer
 * calls for, and asks again, until the model calls for nothing or a budget is spent. Model and key
 * stay in this process.
 */

import { CprgError, invalid } from "../../core/errors.ts";
import type { Json } from "../../core/task.ts";
import { startTimer } from "../../core/timer.ts";
import type { Runner, RunnerContext } from "../contract.ts";
import {
  AGENT_BUDGET_MAX,
  type AgentBudget,
  runnerBudget,
  Spending,
  spent,
  taskBudget,
} from "./agent-budget.ts";
import { modelFailure, waitBefore } from "./agent-errors.ts";
import { checkModelAccess, type ModelAccess, openModel, parseModelName } from "./agent-model.ts";
import { AgentTools } from "./agent-tools.ts";
import { type AgentMessage, type AgentModel, loadAsking } from "./model-library.js";

/** Tokens that one answer may have at most. */
export const ANSWER_TOKENS_MAX = 16_384;
/** Answers in a row whose calls were all malformed, after which the agent ends. */
export const BAD_ANSWERS_MAX = 3;
/** Characters that a note shows of what the model says. */
const NOTE_CHARS_MAX = 1000;
/** About how many bytes are a token, where the server counts none. */
const TOKEN_BYTES = 4;

/** How an agent works. */
export interface AgentOptions extends ModelAccess {
  /** Ceilings; the input of a task may ask for less. */
  readonly budget?: Partial<AgentBudget>;
  /** Comes before the task, in place of the built-in text. */
  readonly instructions?: string;
}

/** What a task that an agent did has as its result. */
export interface AgentResult {
  /** The model's last answer. */
  readonly text: string;
  readonly steps: number;
  readonly tokens: number;
}

/**
 * Makes a runner whose input is a prompt: a string, or `{prompt, budget?}`.
 *
 * @param model `openai:MODEL` or `compatible:MODEL`, or an object of the `ai` library
 * @throws CprgError `invalid_argument` for a name, an access or a budget that cannot be used
 */
export function agentRunner(model: string | AgentModel, options: AgentOptions = {}): Runner {
  const allowed = runnerBudget(options.budget);
  if (typeof model === "string") checkModelAccess(parseModelName(model), options);
  return async (input, context) => {
    const { prompt, budget } = agentInput(input);
    const agent = new Agent(model, {
      ...options,
      context,
      spending: new Spending(taskBudget(budget, allowed)),
    });
    return await agent.run(prompt);
  };
}

/** Looks at an input before it is queued. @throws CprgError `invalid_argument` naming the field */
export function checkAgentInput(input: Json): void {
  taskBudget(agentInput(input).budget, AGENT_BUDGET_MAX);
}

function agentInput(input: Json): { readonly prompt: string; readonly budget?: Json } {
  if (typeof input === "string" && input.trim() !== "") return { prompt: input };
  if (input === null || typeof input !== "object" || Array.isArray(input)) throw noPrompt();
  const { prompt, budget, ...rest } = input as { readonly [name: string]: Json };
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) {
    throw invalid(`input.${unknown.slice(0, 64)}`, "Cannot use input: unknown name");
  }
  if (typeof prompt !== "string" || prompt.trim() === "") throw noPrompt();
  return { prompt, ...(budget === undefined ? {} : { budget }) };
}

function noPrompt(): CprgError {
  return invalid("input.prompt", "Cannot start the agent: the input has no prompt");
}

interface AgentParts extends AgentOptions {
  readonly context: RunnerContext;
  readonly spending: Spending;
}

/** One task of an agent. */
class Agent {
  readonly #model: string | AgentModel;
  readonly #parts: AgentParts;
  readonly #stop = new AbortController();
  #badAnswers = 0;

  constructor(model: string | AgentModel, parts: AgentParts) {
    this.#model = model;
    this.#parts = parts;
  }

  async run(prompt: string): Promise<AgentResult> {
    const { context, spending } = this.#parts;
    const { wallSeconds } = spending.budget;
    const onAbort = (): void => this.#stop.abort(context.signal.reason);
    context.signal.addEventListener("abort", onAbort, { once: true });
    if (context.signal.aborted) onAbort();
    const timer = startTimer(wallSeconds * 1000, () =>
      this.#stop.abort(spent("wall_seconds", wallSeconds)),
    );
    try {
      return await this.#work(prompt);
    } catch (thrown) {
      // Whatever broke because it was stopped, the stop is why.
      throw this.#stop.signal.aborted ? this.#stop.signal.reason : thrown;
    } finally {
      timer.clear();
      context.signal.removeEventListener("abort", onAbort);
    }
  }

  async #work(prompt: string): Promise<AgentResult> {
    const { context, spending } = this.#parts;
    const model =
      typeof this.#model === "string" ? await openModel(this.#model, this.#parts) : this.#model;
    const tools = new AgentTools({
      lease: context.lease,
      signal: this.#stop.signal,
      outputBytes: spending.budget.toolOutputBytes,
      note: (text) => context.note(`step ${spending.steps + 1}: ${text}`),
    });
    const messages: AgentMessage[] = [{ role: "user", content: prompt }];
    for (;;) {
      spending.check();
      tools.beginStep();
      const answer = await this.#answer(model, tools, messages);
      const { text, toolCalls, response, usage } = answer;
      messages.push(...response.messages);
      if (text !== "") {
        const said = text.length > NOTE_CHARS_MAX ? `${text.slice(0, NOTE_CHARS_MAX)}...` : text;
        await context.note(`step ${spending.steps + 1}: ${said}`);
      }
      spending.count(usage.totalTokens ?? estimate(messages));
      this.#checkCalls(toolCalls);
      if (toolCalls.length > 0) continue;
      if (answer.finishReason !== "stop") throw cutOff(answer.finishReason);
      return { text, steps: spending.steps, tokens: spending.tokens };
    }
  }

  /** One answer and what it calls for; requests that failed are repeated within the budget. */
  async #answer(model: AgentModel, tools: AgentTools, messages: readonly AgentMessage[]) {
    const ask = await loadAsking();
    const { context, spending, instructions } = this.#parts;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await ask({
          model,
          system: instructions ?? builtInInstructions(context.lease.root),
          messages: [...messages],
          tools: tools.set,
          maxRetries: 0,
          maxOutputTokens: Math.min(ANSWER_TOKENS_MAX, spending.tokensLeft),
          abortSignal: this.#stop.signal,
        });
      } catch (thrown) {
        this.#stop.signal.throwIfAborted();
        await this.#beforeRetry(thrown, attempt);
      }
    }
  }

  /** Waits until a request may be repeated. @throws what failed, when it may not be */
  async #beforeRetry(thrown: unknown, attempt: number): Promise<void> {
    const { apiKey, context, spending } = this.#parts;
    const secrets = apiKey === undefined ? [] : [apiKey];
    const { error, isRetryable, retryAfterMs } = modelFailure(thrown, secrets);
    if (!isRetryable || attempt >= spending.budget.retries) throw error;
    const waitMs = waitBefore(attempt, retryAfterMs);
    await context.note(`${error.message}; again in ${(waitMs / 1000).toFixed(1)} s`);
    await sleep(waitMs, this.#stop.signal);
  }

  /** @throws CprgError when a model keeps making calls that are none */
  #checkCalls(calls: readonly { readonly invalid?: boolean | undefined }[]): void {
    const areBad = calls.length > 0 && calls.every(({ invalid: isBad }) => isBad === true);
    this.#badAnswers = areBad ? this.#badAnswers + 1 : 0;
    if (this.#badAnswers < BAD_ANSWERS_MAX) return;
    throw new CprgError(
      "failed_precondition",
      `The model made ${BAD_ANSWERS_MAX} answers in a row whose calls of tools are malformed`,
      { reason: "MODEL_CALLS_MALFORMED", hint: "Use a model that can call tools" },
    );
  }
}

function builtInInstructions(root: string): string {
  return (
    `You work in a sandbox, in the directory ${root}, through tools. Do the task that you are given ` +
    "to its end without asking back. When it is done, answer with a short summary and call no tool."
  );
}

function estimate(messages: readonly AgentMessage[]): number {
  return Math.ceil(JSON.stringify(messages).length / TOKEN_BYTES);
}

function cutOff(finish: string): CprgError {
  const why: Readonly<Record<string, string>> = {
    length: `its last answer is longer than ${ANSWER_TOKENS_MAX} tokens, or than what is left of them`,
    "content-filter": "a filter of the model's server held its answer back",
  };
  const message = `The agent has not finished: ${why[finish] ?? `the model stopped with "${finish}"`}`;
  return new CprgError("failed_precondition", message, { reason: "MODEL_CUT_OFF" });
}

/** @throws the signal's reason */
async function sleep(waitMs: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  const timer = startTimer(waitMs, resolve);
  try {
    signal.throwIfAborted();
    await promise;
  } finally {
    timer.clear();
    signal.removeEventListener("abort", onAbort);
  }
}
