/** Waiting for the reports of one exec or transfer. */

import type { InitChannel } from "./init-channel.ts";
import { REPORT, type Report } from "./layout.ts";

/** What process 1 says of one request; null where the sandbox ends before. */
export interface Reports {
  /** That it runs, or that it never will. */
  readonly started: Promise<Report | null>;
  /** The last one; process 1 has reaped it by then. */
  readonly ended: Promise<Report | null>;
  /** The first violation; comes between the two, or never. */
  readonly violated: Promise<Report>;
}

/** Listens from now on. */
export function listenFor(channel: InitChannel, id: number): Reports {
  const started = Promise.withResolvers<Report | null>();
  const ended = Promise.withResolvers<Report | null>();
  const violated = Promise.withResolvers<Report>();
  channel.listen(id, (report) => {
    if (report?.type === REPORT.violation) {
      violated.resolve(report);
      return;
    }
    started.resolve(report);
    if (report?.type === REPORT.started) return;
    ended.resolve(report);
    channel.forget(id);
  });
  return { started: started.promise, ended: ended.promise, violated: violated.promise };
}
