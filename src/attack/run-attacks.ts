/** Runs attacks one after the other and says of each whether the sandbox held. */

import type { LocalEngine } from "../sandbox/engine-contract.ts";
import { ATTACK_LAYERS, type Attack, type AttackLayer, type Verdict } from "./attack.ts";
import { type AttackRun, runAttack } from "./run-attack.ts";
import { openStage } from "./stage.ts";

/** Longest that one attack may take before what runs is ended; multiplied by the patience. */
const ATTACK_TIMEOUT_MS = 40_000;
/** Longest that its end may take after that. */
const END_TIMEOUT_MS = 15_000;

/** `missing`: the layer is not in force here, so the attack was not tried. */
export type AttackState = "pass" | "fail" | "missing";

/** What became of one attack. */
export interface AttackResult {
  readonly id: string;
  readonly layer: AttackLayer;
  /** What was tried. */
  readonly title: string;
  readonly state: AttackState;
  /** What was seen; it may hold text that the program chose. */
  readonly seen: string;
  readonly durationMs: number;
}

/** How attacks are run. */
export interface AttackOptions {
  readonly engine: LocalEngine;
  readonly attacks: readonly Attack[];
  /** What time limits are multiplied by on a machine that is slow, such as an emulated one; 1 if left out. */
  readonly patience?: number;
  /** Stops after the attack under way, which is cut short. */
  readonly signal?: AbortSignal;
  /** Called with each result as it is there. */
  onResult?(result: AttackResult): Promise<void> | void;
}

/**
 * Runs them. Nothing hostile runs where there are no walls: with the sandbox off all are missing.
 *
 * @throws CprgError when no sandbox can be opened, or the executable cannot run inside one
 */
export async function runAttacks(options: AttackOptions): Promise<readonly AttackResult[]> {
  const { engine, attacks, signal, onResult, patience = 1 } = options;
  const results: AttackResult[] = [];
  const isStopped = (): boolean => signal?.aborted === true;
  const keep = async (result: AttackResult): Promise<void> => {
    results.push(result);
    await onResult?.(result);
  };
  if (engine.mode === "off") {
    for (const attack of attacks) await keep(missing(attack, "the sandbox is off"));
    return results;
  }
  await engine.languages.resolve("javascript");
  const stage = await openStage(engine);
  try {
    for (const attack of attacks) {
      if (isStopped()) break;
      const result = await tryAttack({ stage, attack, patience }, signal);
      // One that was cut short shows nothing.
      if (isStopped()) break;
      await keep(result);
    }
  } finally {
    await stage.close();
  }
  return results;
}

/** What of a run is known before it has a time. */
type Planned = Omit<AttackRun, "signal">;

async function tryAttack(planned: Planned, signal: AbortSignal | undefined): Promise<AttackResult> {
  const { stage, attack } = planned;
  const { layers, missing: without } = stage.engine;
  const absent = attack.needs.filter(
    (name) => layers[name] === false || layers[name] === undefined || without.includes(name),
  );
  if (absent.length > 0) return missing(attack, `not in force here: ${absent.join(", ")}`);
  const startedMs = performance.now();
  const { held, seen } = await withinBounds(planned, signal);
  const durationMs = Math.round(performance.now() - startedMs);
  return { ...named(attack), state: held ? "pass" : "fail", seen, durationMs };
}

async function withinBounds(planned: Planned, signal: AbortSignal | undefined): Promise<Verdict> {
  const timeoutMs = ATTACK_TIMEOUT_MS * planned.patience;
  const timeout = AbortSignal.timeout(timeoutMs);
  const running = runAttack({
    ...planned,
    signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
  });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const never = new Promise<Verdict>((resolve) => {
    timer = setTimeout(
      () => resolve({ held: false, seen: "it did not end, and could not be ended" }),
      timeoutMs + END_TIMEOUT_MS * planned.patience,
    );
  });
  try {
    const verdict = await Promise.race([running, never]);
    if (timeout.aborted) return { held: false, seen: `not over after ${timeoutMs} ms` };
    return verdict;
  } finally {
    clearTimeout(timer);
  }
}

function missing(attack: Attack, seen: string): AttackResult {
  return { ...named(attack), state: "missing", seen, durationMs: 0 };
}

function named({ id, layer, title }: Attack): Pick<AttackResult, "id" | "layer" | "title"> {
  return { id, layer, title };
}

/** One layer's results together. */
export interface LayerResult {
  readonly layer: AttackLayer;
  /** `fail` if any attack got through, else `missing` if any was not tried. */
  readonly state: AttackState;
  readonly counts: Readonly<Record<AttackState, number>>;
}

/** Results by layer; a layer without any is left out. */
export function layerResults(results: readonly AttackResult[]): readonly LayerResult[] {
  return ATTACK_LAYERS.flatMap((layer) => {
    const own = results.filter((result) => result.layer === layer);
    if (own.length === 0) return [];
    const counts = { pass: 0, fail: 0, missing: 0 };
    for (const { state } of own) counts[state] += 1;
    const state = counts.fail > 0 ? "fail" : counts.missing > 0 ? "missing" : "pass";
    return [{ layer, state, counts }];
  });
}
