/** The output in events, written to where the program wrote it. */

import { outputBytes, type StreamedEvent } from "./client-stream.ts";
import type { Terminal } from "./terminal.ts";

/** Writes an output event's bytes to standard output or error; other events are not shown. */
export async function printEvent(event: StreamedEvent, terminal: Terminal): Promise<void> {
  if (event.kind === "stdout") await terminal.stdout.write(outputBytes(event));
  if (event.kind === "stderr") await terminal.stderr.write(outputBytes(event));
}
