/** The report of `cprg doctor --attack`: a line for each attack as it ends, then each layer. */

import { arch, release } from "node:os";
import { ATTACK_LAYERS, type AttackLayer } from "../attack/attack.ts";
import {
  type AttackResult,
  type AttackState,
  layerResults,
  runAttacks,
} from "../attack/run-attacks.ts";
import { ATTACKS } from "../attack/suite.ts";
import { silentLog } from "../core/log.ts";
import { openLocalEngine } from "../sandbox/engine.ts";
import { type ConfigInput, loadConfig } from "./config.ts";
import { engineOptions } from "./engine.ts";
import { engineFlagValues } from "./engine-flags.ts";
import { EXIT } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import {
  type Colour,
  formatDuration,
  jsonText,
  type Paint,
  paintFor,
  printable,
  table,
} from "./output.ts";
import { nearest } from "./suggest.ts";
import type { Terminal, TerminalSignal } from "./terminal.ts";

const COLOURS: Readonly<Record<AttackState, Colour>> = {
  pass: "green",
  fail: "red",
  missing: "yellow",
};
const STOPPED_BY: readonly TerminalSignal[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** What the command was given. */
export interface AttackFlags {
  readonly flags: ConfigInput["flags"];
  /** Layers to attack; empty: all. */
  readonly layers: readonly string[];
  readonly isJson: boolean;
}

/**
 * Attacks sandboxes of this host and prints what was tried and seen.
 *
 * @returns 0 when every attack failed to get through; 1 when one did, when a layer is missing, or
 *   when it was interrupted
 * @throws CprgError when no sandbox can be opened here
 */
export async function attackHost(
  { flags, layers, isJson }: AttackFlags,
  terminal: Terminal,
): Promise<number> {
  const chosen = parseLayers(layers);
  const input = { env: terminal.env, uid: terminal.uid, flags: engineFlagValues(flags) };
  const { settings } = await loadConfig(input);
  const engine = await openLocalEngine(engineOptions(settings, silentLog));
  const stop = new AbortController();
  const ignore = STOPPED_BY.map((name) => terminal.onSignal(name, () => stop.abort()));
  const paint = paintFor(terminal.stdout, terminal.env);
  const host = { kernel: release(), arch: arch(), uid: terminal.uid, mode: engine.mode };
  if (!isJson) {
    const { kernel, mode, uid } = host;
    await terminal.stdout.write(
      `Linux ${printable(kernel)} ${host.arch}, uid ${uid}, mode ${mode}\n`,
    );
  }
  try {
    const show = lineWriter(terminal, paint);
    const results = await runAttacks({
      engine,
      attacks: ATTACKS.filter(({ layer }) => chosen.includes(layer)),
      signal: stop.signal,
      ...(isJson ? {} : { onResult: show }),
    });
    const isWhole = !stop.signal.aborted && results.every(({ state }) => state === "pass");
    await terminal.stdout.write(
      isJson
        ? jsonText({ ok: isWhole, ...host, ...toJson(results) })
        : summary(results, { paint, isInterrupted: stop.signal.aborted }),
    );
    return isWhole ? EXIT.ok : EXIT.failed;
  } finally {
    for (const end of ignore) end();
    await engine.close();
  }
}

function parseLayers(names: readonly string[]): readonly AttackLayer[] {
  if (names.length === 0) return ATTACK_LAYERS;
  return names.map((name) => {
    const found = ATTACK_LAYERS.find((layer) => layer === name);
    if (found !== undefined) return found;
    const near = nearest(name, ATTACK_LAYERS);
    throw usageError(
      `Cannot attack layer "${name.slice(0, 64)}": unknown`,
      near === null ? `One of ${ATTACK_LAYERS.join(", ")}` : `Did you mean "${near}"?`,
    );
  });
}

/** Names as everywhere in JSON of cprg. */
function toJson(results: readonly AttackResult[]) {
  return {
    layers: layerResults(results).map(({ layer, state, counts }) => ({ layer, state, ...counts })),
    attacks: results.map(({ durationMs, ...result }) => ({ ...result, duration_ms: durationMs })),
  };
}

/** Writes results as they come, beneath the name of their layer. */
function lineWriter(terminal: Terminal, paint: Paint): (result: AttackResult) => Promise<void> {
  let current: AttackLayer | null = null;
  return async (result) => {
    const head = result.layer === current ? "" : `\n${paint("bold", result.layer)}\n`;
    current = result.layer;
    await terminal.stdout.write(head + attackLines(result, paint));
  };
}

const STATE_WIDTH = "missing".length;

/** What was tried, and beneath it what was seen. */
export function attackLines({ state, title, seen }: AttackResult, paint: Paint): string {
  const word = paint(COLOURS[state], state) + " ".repeat(STATE_WIDTH - state.length);
  const indent = " ".repeat(STATE_WIDTH + 4);
  return `  ${word}  ${printable(title)}\n${indent}${paint("dim", printable(seen))}\n`;
}

/** Each layer on a line, and the sum. */
export function summary(
  results: readonly AttackResult[],
  { paint, isInterrupted }: { readonly paint: Paint; readonly isInterrupted: boolean },
): string {
  const rows = layerResults(results).map(({ layer, state, counts }) => [
    { text: state, colour: COLOURS[state] },
    layer,
    [`${counts.pass} held`, `${counts.fail} broken`, `${counts.missing} not tried`]
      .filter((part) => !part.startsWith("0 "))
      .join(", "),
  ]);
  const durationMs = results.reduce((sum, result) => sum + result.durationMs, 0);
  const count = (state: AttackState) => results.filter((result) => result.state === state).length;
  const total = `${count("pass")} held, ${count("fail")} broken, ${count("missing")} not tried`;
  const end = isInterrupted ? "Interrupted: not everything was tried\n" : "";
  return `\n${table(["STATE", "LAYER", "ATTACKS"], rows, paint)}\n${total}, in ${formatDuration(durationMs)}\n${end}`;
}
