// A worker's methods behind a stream in memory, with a control plane's mux at the other end.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Mux } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { EXEC_START, WORKER_CLAIM } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { CprgError } from "../../src/core/errors.ts";
import { silentLog } from "../../src/core/log.ts";
import type { ExecExit, ExecStartRequest } from "../../src/gen/messages.ts";
import { Native } from "../../src/sandbox/native.ts";
import { WORKER_FEATURES } from "../../src/worker/capabilities.ts";
import { ClaimHolder, type ClaimHolderOptions } from "../../src/worker/claim-holder.ts";
import { workerHandlers } from "../../src/worker/methods.ts";
import { PlainPlace } from "../../src/worker/plain-place.ts";
import { framePair, type PairEnd } from "../bridge/frame-pair.ts";

export const CLAIM = { taskId: "t1", epoch: 1 };
export const PATH = "/usr/local/bin:/usr/bin:/bin";

export interface Ground {
  readonly root: string;
  readonly home: string;
  readonly holder: ClaimHolder;
  readonly native: Native;
  readonly handlers: Handlers;
  /** The control plane's side. */
  readonly plane: Mux;
  readonly end: PairEnd;
  /** Another stream to the same worker, as after a loss. */
  reconnect(): { plane: Mux; end: PairEnd };
  claim(key?: { taskId: string; epoch: number }, env?: Record<string, string>): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface GroundOptions extends Partial<ClaimHolderOptions> {
  /** What the control plane lists; everything by default. */
  readonly lists?: readonly string[];
}

/** A worker on a directory of its own. */
export async function ground(options: GroundOptions = {}): Promise<Ground> {
  const directory = mkdtempSync(join(tmpdir(), "cprg-worker-"));
  const [root, home] = [join(directory, "root"), join(directory, "home")];
  const native = await Native.load({ dataDir: directory });
  const holder = new ClaimHolder({
    slots: 1,
    log: silentLog,
    openPlace: async () => new PlainPlace({ native, root, home }),
    ...options,
  });
  const handlers = workerHandlers({
    holder,
    variables: { PATH },
    onDrain: () => undefined,
    onReattach: () => undefined,
  });
  const own = [...handlers.names, ...WORKER_FEATURES];
  const lists = options.lists ?? own;
  const connect = (): { plane: Mux; end: PairEnd } => {
    const [end, workerEnd] = framePair();
    const plane = openMux(end, { handlers: new Handlers(), own: lists, peer: new Set(own) });
    openMux(workerEnd, { handlers, own, peer: new Set(lists) });
    return { plane, end };
  };
  const first = connect();
  return {
    root,
    home,
    holder,
    native,
    handlers,
    ...first,
    reconnect: connect,
    claim: async (key = CLAIM, env = {}) => {
      await first.plane.call(WORKER_CLAIM, { ...key, env });
    },
    async [Symbol.asyncDispose]() {
      await holder.end(holder.table.all(), "shutdown");
      first.plane.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export interface Ran {
  readonly stdout: string;
  readonly stderr: string;
  readonly exit: ExecExit | undefined;
  readonly seqs: readonly number[];
}

/** Runs an exec to its end. */
export async function run(plane: Mux, request: Partial<ExecStartRequest>): Promise<Ran> {
  const parts: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  let exit: ExecExit | undefined;
  const seqs: number[] = [];
  for await (const item of plane.stream(EXEC_START, { claim: CLAIM, ...request })) {
    seqs.push(item.seq);
    if (item.stdout) parts.stdout.push(Uint8Array.from(item.stdout));
    if (item.stderr) parts.stderr.push(Uint8Array.from(item.stderr));
    exit = item.exit ?? exit;
  }
  const text = (list: Uint8Array[]): string => Buffer.concat(list).toString();
  return { stdout: text(parts.stdout), stderr: text(parts.stderr), exit, seqs };
}

/** `code reason` of what a promise rejects with. */
export async function refusal(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (CprgError.is(error)) return [error.code, error.reason].filter(Boolean).join(" ");
    throw error;
  }
  return "served";
}

/** Waits for something to hold. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 2));
}
