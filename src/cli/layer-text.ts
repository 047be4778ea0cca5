/** Layers on one line. */

import type { Layers } from "../core/event.ts";
import { printable } from "./output.ts";

/** Those in force, each with its variety where it has one: `root, cgroup v1, network`. */
export function layerText(layers: Layers): string {
  const names = Object.entries(layers)
    .filter(([, state]) => state !== false)
    .map(([name, state]) => (state === true ? name : `${name} ${state}`));
  return printable(names.length === 0 ? "none" : names.join(", "));
}
