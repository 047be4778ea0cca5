/** What the calls of one mux share. */

import { CprgError } from "../core/errors.ts";
import type { startTimer } from "../core/timer.ts";
import type { CallContext, Frame, FrameKind, PeerCapabilities } from "./contract.ts";
import { ItemQueue } from "./item-queue.ts";
import { CREDIT } from "./methods.ts";

/** Of frames that carry none, and of the end of a stream. */
export const NO_PAYLOAD = new Uint8Array(0);

/** A frame with what is not given left empty. */
export function frame(kind: FrameKind, id: string, rest: Partial<Frame> = {}): Frame {
  return { id, method: "", payload: NO_PAYLOAD, error: "", ...rest, kind };
}

/** The mux, as its calls see it. */
export interface CallHost {
  readonly peer: PeerCapabilities;
  readonly startTimer: typeof startTimer;
  /** Whether both sides list credit. */
  hasCredit(): boolean;
  send(frame: Frame): Promise<void>;
  /** As `send`, for frames whose fate interests nobody. */
  post(frame: Frame): void;
  /** Sends a notice of the mux's own. */
  notice(method: string, payload: Uint8Array): void;
  /** A handler threw what is no CprgError. */
  reportBug(error: unknown, context: CallContext | undefined): void;
}

/** The queue of items that arrive for one call. */
export function itemQueue(
  host: CallHost,
  call: {
    readonly id: string;
    readonly upload: boolean;
    readonly giveUp: (error: CprgError) => void;
  },
): ItemQueue {
  return new ItemQueue({
    isCredited: host.hasCredit(),
    startTimer: host.startTimer,
    grant: (bytes) => {
      const { id: requestId, upload } = call;
      host.notice(CREDIT.name, CREDIT.request.encode({ requestId, bytes, upload }));
    },
    stalled: () =>
      call.giveUp(new CprgError("resource_exhausted", "items were not taken for too long")),
  });
}
