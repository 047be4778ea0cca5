/**
 * What an agent may spend on one task. Each bound has a name, a default and a ceiling: a task may ask
 * for less than its runner allows, never for more.
 */

import { CprgError, invalid } from "../../core/errors.ts";
import type { Json } from "../../core/task.ts";

/** What an agent may spend. */
export interface AgentBudget {
  /** Answers of the model. */
  readonly steps: number;
  /** From the start of the runner to its end, in seconds. */
  readonly wallSeconds: number;
  /** Of all requests and answers together, as the model's server counts them. */
  readonly tokens: number;
  /** Bytes that the model is shown of what one call of a tool gave. */
  readonly toolOutputBytes: number;
  /** Times in a row that a request to the model's server is repeated. */
  readonly retries: number;
}

/** A name of {@link AgentBudget}. */
export type BudgetName = keyof AgentBudget;

/** What holds when nothing is said. */
export const AGENT_BUDGET_DEFAULT: AgentBudget = {
  steps: 50,
  wallSeconds: 900,
  tokens: 1_000_000,
  toolOutputBytes: 32 * 1024,
  retries: 4,
};

/** What a runner can be given at most. */
export const AGENT_BUDGET_MAX: AgentBudget = {
  steps: 1000,
  wallSeconds: 24 * 60 * 60,
  tokens: 100_000_000,
  toolOutputBytes: 256 * 1024,
  retries: 20,
};

/** Names of the budget as the input of a task has them. */
const FIELDS: Readonly<Record<string, BudgetName>> = {
  steps: "steps",
  wall_seconds: "wallSeconds",
  tokens: "tokens",
  tool_output_bytes: "toolOutputBytes",
  retries: "retries",
};

/**
 * The budget of a runner: what was given, over the defaults.
 *
 * @throws CprgError `invalid_argument` naming the part that is out of its range
 */
export function runnerBudget(given: Partial<AgentBudget> = {}): AgentBudget {
  for (const [field, name] of Object.entries(FIELDS)) {
    const value = given[name];
    if (value !== undefined) checkPart(field, value, AGENT_BUDGET_MAX[name]);
  }
  return { ...AGENT_BUDGET_DEFAULT, ...given };
}

/**
 * The budget of a task: what its input asks for, cut to what its runner allows.
 *
 * @throws CprgError `invalid_argument` naming the part
 */
export function taskBudget(asked: Json | undefined, allowed: AgentBudget): AgentBudget {
  if (asked === undefined) return allowed;
  if (asked === null || typeof asked !== "object" || Array.isArray(asked)) {
    throw invalid("input.budget", "Cannot use input.budget: expected an object");
  }
  const parts = Object.entries(asked).map(([field, value]) => {
    const name = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined;
    if (name === undefined) {
      const hint = `Known: ${Object.keys(FIELDS).join(", ")}`;
      throw invalid(`input.budget.${field.slice(0, 64)}`, "Cannot use budget: unknown name", hint);
    }
    checkPart(`input.budget.${field}`, value, AGENT_BUDGET_MAX[name]);
    return [name, Math.min(value, allowed[name])];
  });
  return { ...allowed, ...Object.fromEntries(parts) };
}

function checkPart(field: string, value: unknown, most: number): asserts value is number {
  const least = field.endsWith("retries") ? 0 : 1;
  const isWhole = typeof value === "number" && Number.isSafeInteger(value);
  if (isWhole && value >= least && value <= most) return;
  throw invalid(field, `Cannot use ${field}: not a whole number from ${least} to ${most}`);
}

/** What an agent has spent so far. */
export class Spending {
  readonly budget: AgentBudget;
  #steps = 0;
  #tokens = 0;

  constructor(budget: AgentBudget) {
    this.budget = budget;
  }

  get steps(): number {
    return this.#steps;
  }

  get tokens(): number {
    return this.#tokens;
  }

  /** Tokens that are left for the next answer. */
  get tokensLeft(): number {
    return this.budget.tokens - this.#tokens;
  }

  /** Counts an answer of the model in. */
  count(tokens: number): void {
    this.#steps += 1;
    this.#tokens += tokens;
  }

  /** @throws CprgError `resource_exhausted` when no further answer may be asked for */
  check(): void {
    if (this.#steps >= this.budget.steps) throw spent("steps", this.budget.steps);
    if (this.tokensLeft <= 0) throw spent("tokens", this.budget.tokens);
  }
}

/** The error of a task whose budget is spent. The wall time has the reason that programs have. */
export function spent(field: "steps" | "tokens" | "wall_seconds", most: number): CprgError {
  const isTime = field === "wall_seconds";
  return new CprgError(
    isTime ? "deadline_exceeded" : "resource_exhausted",
    `The agent has not finished within its budget: ${field} ${most}`,
    {
      reason: isTime ? "wall_limit" : "runner_error",
      field: `input.budget.${field}`,
      hint: "Ask for less at once, or raise the budget",
      retryable: false,
    },
  );
}
