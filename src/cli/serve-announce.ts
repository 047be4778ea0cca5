/** What `cprg serve` says when it listens: where, how strong its sandboxes are, and the new key. */

import type { LocalEngine } from "../sandbox/engine.ts";
import { layerText } from "./layer-text.ts";
import { paintFor } from "./output.ts";
import type { ServerKeys } from "./serve-config.ts";
import type { Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** Prints it. */
export async function announce(options: {
  readonly keys: ServerKeys;
  readonly engine: LocalEngine;
  readonly server: { readonly url: URL };
  readonly terminal: Terminal;
}): Promise<void> {
  const { keys, engine, server, terminal } = options;
  const paint = paintFor(terminal.stdout, terminal.env);
  const lines = [
    `cprg ${VERSION} listening on ${paint("bold", server.url.origin)}`,
    `sandbox  ${engine.mode}`,
    `layers   ${layerText(engine.layers)}`,
    `missing  ${engine.missing.length === 0 ? "nothing" : paint("yellow", engine.missing.join(", "))}`,
    ...(keys.madeKey === null ? [] : [`api key  ${keys.madeKey} (kept for you; shown only now)`]),
  ];
  await terminal.stdout.write(`${lines.join("\n")}\n`);
}
