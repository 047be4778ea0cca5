// Two muxes over a stream in memory, and one mux with a test's own frames at the other end.

import type { Frame, FrameKind, Mux } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { type MuxOptions, openMux } from "../../src/bridge/mux.ts";
import { framePair, type PairEnd } from "./frame-pair.ts";

/** Everything that both sides of a test list unless it says otherwise. */
export const FULL = ["/internal/credit", "heartbeat.ack", "worker.Reattach", "worker.secret"];

export function capabilities(list: readonly string[]): { has(name: string): boolean } {
  return new Set(list);
}

export interface PeersOptions extends Partial<MuxOptions> {
  /** What the caller's side lists. */
  readonly callerLists?: readonly string[];
  readonly calleeLists?: readonly string[];
}

/** A caller, and a callee that serves `handlers`. */
export function peers(
  handlers: Handlers,
  { callerLists = FULL, calleeLists = FULL, ...rest }: PeersOptions = {},
): { caller: Mux; callee: Mux; callerEnd: PairEnd; calleeEnd: PairEnd } {
  const [callerEnd, calleeEnd] = framePair();
  const caller = openMux(callerEnd, {
    handlers: new Handlers(),
    own: callerLists,
    peer: capabilities(calleeLists),
    ...rest,
  });
  const callee = openMux(calleeEnd, {
    handlers,
    own: calleeLists,
    peer: capabilities(callerLists),
    ...rest,
  });
  return { caller, callee, callerEnd, calleeEnd };
}

/** One mux, and a peer whose frames a test writes itself. */
export interface RawPeer {
  readonly mux: Mux;
  readonly end: PairEnd;
  send(kind: FrameKind, rest?: Partial<Frame>): Promise<void>;
  /** The next frame of the mux. */
  next(): Promise<Frame>;
}

export function rawPeer(
  handlers: Handlers,
  { calleeLists = FULL, callerLists = FULL, ...rest }: PeersOptions = {},
): RawPeer {
  const [end, muxEnd] = framePair();
  const own = calleeLists;
  const mux = openMux(muxEnd, { handlers, own, peer: capabilities(callerLists), ...rest });
  const frames = end.frames[Symbol.asyncIterator]();
  return {
    mux,
    end,
    send: (kind, part = {}) =>
      end.send({ id: "", method: "", payload: new Uint8Array(0), error: "", ...part, kind }),
    next: async () => {
      const { done, value } = await frames.next();
      if (done) throw new Error("the mux ended the stream");
      return value;
    },
  };
}
