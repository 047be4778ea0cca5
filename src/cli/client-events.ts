/**
 * The events of a task as server-sent events, in order without gap or duplicate. A connection that
 * breaks is taken up again behind the last one.
 */

import { CprgError } from "../core/errors.ts";
import { type ServerAccess, sendBytes, unreachable } from "./client.ts";
import { parseFrame, STREAM_ATTEMPTS_MAX, type StreamedEvent } from "./client-stream.ts";
import { UNREACHABLE } from "./exit-code.ts";

/** Wait before the first repetition; it doubles each time. */
const RETRY_MS = 100;
/** Characters of one event: a row of output has 64 KiB, which escapes may make six times as long. */
const EVENT_CHARS_MAX = 4 * 1024 * 1024;

/**
 * Events from the first to `finished`.
 *
 * @param path of the task: `/v1/tasks/ID`
 * @throws CprgError as the server says, or when it can no longer be reached
 */
export async function* taskEvents(
  access: ServerAccess,
  path: string,
): AsyncGenerator<StreamedEvent> {
  let next = 1;
  for (let attempts = 0; attempts < STREAM_ATTEMPTS_MAX; attempts += 1) {
    await pause(attempts);
    try {
      for await (const event of oneConnection(access, `${path}/events?from_seq=${next}`)) {
        if (event.seq < next) continue;
        next = event.seq + 1;
        attempts = -1;
        yield event;
        if (event.kind === "finished") return;
      }
    } catch (error) {
      if (!isTakenUpAgain(error, next)) throw error;
    }
  }
  throw unreachable(access, "the stream keeps breaking");
}

async function pause(attempts: number): Promise<void> {
  if (attempts > 0) await Bun.sleep(RETRY_MS * 2 ** (attempts - 1));
}

/** What never began says why; what was followed once is taken up again. */
function isTakenUpAgain(error: unknown, next: number): boolean {
  return next > 1 && CprgError.is(error) && error.reason === UNREACHABLE;
}

async function* oneConnection(access: ServerAccess, path: string): AsyncGenerator<StreamedEvent> {
  const headers = { Accept: "text/event-stream" };
  const bytes = await sendBytes(access, { method: "GET", path, headers });
  for await (const line of linesOf(bytes)) {
    if (line.startsWith("data:")) yield* parseFrame(line.slice("data:".length).trim());
  }
}

async function* linesOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of bytes) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > EVENT_CHARS_MAX) {
      throw new CprgError("data_loss", "Cannot read event: it is longer than any of cprg");
    }
    yield* lines;
  }
}
