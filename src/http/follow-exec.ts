/** The events of an exec as they come: of one that was just started, or of any. */

import type { Context } from "hono";
import type { ExecRecord } from "../core/exec.ts";
import type { ExecService } from "../sandboxes/exec-service.ts";
import type { AppEnv } from "./env.ts";
import { type Followed, followResponse } from "./follow.ts";
import type { StreamedAnswers } from "./streamed.ts";

/** Which exec is followed, and from where. */
export interface FollowedExec extends Pick<Followed, "headers" | "place"> {
  readonly execs: ExecService;
  readonly exec: ExecRecord;
  readonly fromSeq: number;
}

/** The answer, whose first event says which exec it is. */
export async function followExec(
  c: Context<AppEnv>,
  streamed: StreamedAnswers,
  { execs, exec, fromSeq, ...more }: FollowedExec,
): Promise<Response> {
  return await followResponse(c, streamed, {
    ...more,
    subscribe: (signal) => execs.subscribe(exec, { fromSeq, signal }),
    first: { event: "exec", data: { exec_id: exec.id, sandbox_id: exec.sandboxId } },
  });
}
