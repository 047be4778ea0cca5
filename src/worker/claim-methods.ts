/** `worker.*`: claims are made, released, kept over a lost stream; the worker is drained. */

import { arch, platform } from "node:os";
import type { HandlerTable } from "../bridge/contract.ts";
import { WORKER_CLAIM, WORKER_DRAIN, WORKER_REATTACH, WORKER_RELEASE } from "../bridge/methods.ts";
import type { ClaimVerdict, RunningExec } from "../gen/messages.ts";
import type { ClaimHolder, HeldClaim } from "./claim-holder.ts";
import type { ClaimKey } from "./claim-table.ts";

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "x86_64", arm64: "aarch64" };
const SYSTEMS: Readonly<Record<string, string>> = { win32: "windows" };

/** What claims are served from. */
export interface ClaimMethodsOptions {
  readonly holder: ClaimHolder;
  /** The worker takes no other claim and ends when it holds none. */
  onDrain(reason: string): void;
  /** The first call on a stream that follows a lost one has come. */
  onReattach(): void;
}

/** Adds the methods. */
export function serveClaims(handlers: HandlerTable, options: ClaimMethodsOptions): void {
  const { holder } = options;
  handlers
    .unary(WORKER_CLAIM, async (request, { signal }) => {
      const { place } = await holder.claim(request, signal);
      const { root, home, limits, layers, missing } = place;
      return {
        root,
        home,
        os: SYSTEMS[platform()] ?? platform(),
        arch: ARCHITECTURES[arch()] ?? arch(),
        limits: { ...limits },
        layers: Object.fromEntries(
          Object.entries(layers).map(([name, value]) => [name, String(value)]),
        ),
        missing: [...missing],
      };
    })
    .unary(WORKER_RELEASE, async ({ claim }) => ({ killed: await holder.release(claim) }))
    .unary(WORKER_DRAIN, ({ reason }) => {
      const claims = holder.drain();
      options.onDrain(reason);
      return { claims };
    })
    .unary(WORKER_REATTACH, async ({ verdicts }) => {
      options.onReattach();
      const kept = await holder.reattach(verdicts.flatMap(keptClaim));
      return { execs: kept.flatMap(runningExecs) };
    });
}

function keptClaim({ claim, keep }: ClaimVerdict): ClaimKey[] {
  return keep && claim !== null ? [claim] : [];
}

/** Those of a claim that someone may still want to follow. */
function runningExecs({ key, execs }: HeldClaim): RunningExec[] {
  return execs.all
    .filter(({ log }) => !log.isTaken)
    .map(({ id, log }) => ({
      claim: { ...key },
      execId: id,
      oldestSeq: log.oldestSeq,
      nextSeq: log.nextSeq,
      ended: log.isEnded,
    }));
}
