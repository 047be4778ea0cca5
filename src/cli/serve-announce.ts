/** What `cprg serve` says when it listens: where, how strong its sandboxes are, and the new key. */

import { layerText } from "./layer-text.ts";
import { type Paint, paintFor } from "./output.ts";
import type { ServerParts } from "./serve-parts.ts";
import type { Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** Prints it. */
export async function announce(
  options: Pick<ServerParts, "keys" | "engine" | "server" | "bridgeLines"> & {
    readonly terminal: Terminal;
  },
): Promise<void> {
  const { keys, engine, server, bridgeLines, terminal } = options;
  const paint = paintFor(terminal.stdout, terminal.env);
  const lines = [
    `cprg ${VERSION} listening on ${paint("bold", server.url.origin)}`,
    ...(engine.mode === "none"
      ? ["sandbox  none: nothing runs on this host"]
      : wallLines(engine, paint)),
    ...bridgeLines,
    ...(keys.madeKey === null ? [] : [`api key  ${keys.madeKey} (kept for you; shown only now)`]),
  ];
  await terminal.stdout.write(`${lines.join("\n")}\n`);
}

function wallLines({ mode, layers, missing }: ServerParts["engine"], paint: Paint): string[] {
  const gone = missing.length === 0 ? "nothing" : paint("yellow", missing.join(", "));
  return [`sandbox  ${mode}`, `layers   ${layerText(layers)}`, `missing  ${gone}`];
}
