/**
 * What an attack is: a hostile program, what the host watches meanwhile, and how the two are judged.
 * Attacks are values; `run-attack.ts` runs them.
 */

import type { Limits } from "../core/limits.ts";
import type { Outcome } from "../core/outcome.ts";
import type { Exec, ExecLease, ExecNotice } from "../provider/contract.ts";
import type { HostProcess } from "./host-process.ts";
import type { Stage } from "./stage.ts";

/** What attacks are aimed at, in the order in which they run and are shown. */
export const ATTACK_LAYERS = [
  "root",
  "identity",
  "namespaces",
  "cgroup",
  "rlimits",
  "seccomp",
  "descriptors",
  "environment",
  "network",
  "termination",
  "limits",
] as const;
/** One of {@link ATTACK_LAYERS}. */
export type AttackLayer = (typeof ATTACK_LAYERS)[number];

/** Layers of the engine that an attack needs; where one is not in force the attack is not tried. */
export type EngineLayer =
  | "root"
  | "identity"
  | "namespaces"
  | "cgroup"
  | "rlimits"
  | "seccomp"
  | "descriptors"
  | "environment";

/** The line with which a program says that the host may look: {@link Attack.watch}. */
export const READY = "READY";

/** A hostile program. */
export interface HostileProgram {
  /** JavaScript runs on the executable itself; `sh` where a program must have no runtime. */
  readonly language: "javascript" | "sh";
  readonly code: string;
  readonly limits?: Partial<Limits>;
  /**
   * How it ends. `itself`: its standard input is closed once it was watched; `cancel`: the exec is
   * killed then; `release`: the sandbox is taken away beneath it.
   */
  readonly ending?: "itself" | "cancel" | "release";
}

/** What the host can look at while the program waits. */
export interface Scene {
  readonly stage: Stage;
  readonly lease: ExecLease;
  readonly exec: Exec;
  /** Process 1 of the sandbox. */
  readonly init: HostProcess;
  /** The program, and everything that it started, as the host numbers them. */
  readonly programs: readonly HostProcess[];
  /** Programs of a second sandbox, where the attack asks for one. */
  readonly neighbours: readonly HostProcess[];
}

/** Everything that was seen of one attack. */
export interface Seen<T = unknown> {
  readonly stage: Stage;
  readonly limits: Limits;
  readonly outcome: Outcome;
  readonly notices: readonly Exclude<ExecNotice, { type: "output" }>[];
  /** The beginning of what it printed. */
  readonly stdout: string;
  readonly stderr: string;
  /** Bytes that arrived of each stream. */
  readonly received: Readonly<Record<"stdout" | "stderr", number>>;
  /** What {@link Attack.watch} returned. */
  readonly watched: T;
  /** What another program printed in the same sandbox afterwards: {@link Attack.after}. */
  readonly after: string;
  /** The value that the program reported. @throws Error when it reported none */
  report(): Readonly<Record<string, unknown>>;
  /** The same of {@link Attack.after}'s program. @throws Error when it reported none */
  reportAfter(): Readonly<Record<string, unknown>>;
}

/** Whether the sandbox held, and what shows it. */
export interface Verdict {
  readonly held: boolean;
  /** For people, on one line. */
  readonly seen: string;
}

/** One attack. */
export interface Attack {
  /** `layer.name`, unique. */
  readonly id: string;
  readonly layer: AttackLayer;
  /** What is tried. */
  readonly title: string;
  readonly needs: readonly EngineLayer[];
  readonly program: HostileProgram;
  /** Whether a second sandbox runs beside it. */
  readonly hasNeighbour?: boolean;
  /** A second program, in the same sandbox or a new one, when the first has ended. */
  readonly after?: { readonly program: HostileProgram; readonly where: "same" | "new" };
  /** Called when the program has printed {@link READY}; what it returns is judged. */
  watch?(scene: Scene): unknown;
  judge(seen: Seen): Verdict;
}

/** An attack with the type of what it watches, which only its own judge sees. */
interface AttackOf<T> extends Omit<Attack, "watch" | "judge"> {
  watch?(scene: Scene): T;
  judge(seen: Seen<Awaited<T>>): Verdict;
}

/** Types an attack by what it watches, and forgets the type again, for the list. */
export function defineAttack<T>(attack: AttackOf<T>): Attack {
  return attack as Attack;
}

/** The sandbox held. */
export function held(seen: string): Verdict {
  return { held: true, seen };
}

/** It did not. */
export function broken(seen: string): Verdict {
  return { held: false, seen };
}

/**
 * A verdict from a list of complaints.
 *
 * @param good what to say when there are none
 */
export function verdict(complaints: readonly string[], good: string): Verdict {
  return complaints.length === 0 ? held(good) : broken(complaints.join("; "));
}
