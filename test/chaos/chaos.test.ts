// What may happen to a worker, a control plane and the wire between them, at each moment of a task:
// every task ends once, with a reason; nothing runs twice; no process of a lost claim survives; and
// afterwards all goes on. CPRG_CHAOS_ROUNDS sets how often each of the 32 cells is played.

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { pidsWith } from "../helpers/processes.ts";
import { ChaosGround } from "./ground.ts";
import type { Side } from "./wire.ts";

const ROUNDS = Number(process.env["CPRG_CHAOS_ROUNDS"] ?? 1);
const TIMEOUT_MS = 300_000;
/** Growth of a control plane's memory over all rounds of its cells. */
const GROWTH_MAX = 1.5;

/** The moment: what the control plane is about to ask for. */
const MOMENTS = {
  claim: "worker.Claim",
  exec: "exec.Start",
  upload: "fs.Upload",
  release: "worker.Release",
} as const;
const FAULTS = ["kill", "freeze", "cut", "half-open"] as const;
const SIDES = ["worker", "plane"] as const;

/** A frozen process is thawed before anyone notices, and after everyone has. */
const FREEZE_MS = [600, 9000] as const;

const TASK_ENDS = ["succeeded", "failed"];
/** What a task that is done has written, each line once. */
const WHOLE = ["began", "ended"];
type Fault = (typeof FAULTS)[number];

let freezes = 0;

async function strike(
  ground: ChaosGround,
  { fault, side }: { readonly fault: Fault; readonly side: Side },
): Promise<void> {
  if (fault === "cut") return ground.wire.cut(side);
  if (fault === "half-open") return ground.wire.halfOpen(side);
  if (fault === "kill") return await ground.restart(side);
  freezes += 1;
  await ground.freeze(side, FREEZE_MS[freezes % FREEZE_MS.length] ?? 0);
}

/** Lines of the witness that a task wrote. */
function witnessed(ground: ChaosGround, id: string): string[] {
  const lines = readFileSync(ground.witness, "utf8").split("\n");
  return lines.filter((line) => line.startsWith(`${id} `)).map((line) => line.slice(id.length + 1));
}

/** Pids of a task's programs that live. */
function programsOf(id: string): number[] {
  return pidsWith(`chaos-$1\0sh\0${id}`);
}

/** One task that is struck at a moment, and one that shows that all goes on. */
async function play(
  ground: ChaosGround,
  { fault, side, moment }: { fault: Fault; side: Side; moment: keyof typeof MOMENTS },
): Promise<void> {
  const id = crypto.randomUUID();
  const struck = Promise.withResolvers<void>();
  ground.wire.watch(MOMENTS[moment], () => {
    strike(ground, { fault, side }).then(struck.resolve, struck.reject);
  });
  await ground.submit(id);
  await struck.promise;
  const ended = await ground.ended(id);
  expect(TASK_ENDS).toContain(ended.status);
  expect(ended.reason).toBeString();
  // The same end is told again, after everything.
  await ground.settled();
  expect(await ground.ended(id)).toEqual(ended);
  const lines = witnessed(ground, id);
  expect(lines).toEqual(ended.status === "succeeded" ? WHOLE : WHOLE.slice(0, lines.length));
  await ground.until(() => programsOf(id).length === 0, "no program of the task lives");
  const probe = crypto.randomUUID();
  await ground.submit(probe);
  expect(await ground.ended(probe)).toMatchObject({ status: "succeeded", reason: "exit" });
  expect(witnessed(ground, probe)).toEqual(WHOLE);
}

const CELLS = SIDES.flatMap((side) => FAULTS.map((fault) => [side, fault] as const));

describe("a task ends once, and all goes on", () => {
  test.concurrent.each(CELLS)(
    "after the %s's %s at each moment",
    async (side, fault) => {
      await using ground = await ChaosGround.open();
      const memory: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        for (const moment of Object.keys(MOMENTS) as (keyof typeof MOMENTS)[]) {
          await play(ground, { fault, side, moment }).catch((cause: unknown) => {
            throw new Error(`${side} ${fault} at its ${moment}, round ${round}`, { cause });
          });
        }
        memory.push(await ground.rss());
      }
      // Memory of a process that has only just begun says nothing.
      const [, second = memory[0] ?? 0, ...rest] = memory;
      expect(Math.max(second, ...rest)).toBeLessThan(second * GROWTH_MAX);
    },
    TIMEOUT_MS * ROUNDS,
  );
});
