/** The layers that depend on nothing of a host: where a sandbox was built, they hold. */

import type { Layers } from "../core/event.ts";
import type { HostLayer } from "./host-layer.ts";

/** By the name under which the engine reports each; the others have lines of their own in host.ts. */
const HELD: Readonly<Record<string, string>> = {
  root: "a root of its own: of this host only programs and libraries, read-only; one capped tmpfs to write to",
  namespaces: "processes, network, mounts, host name and System V objects are its own",
  rlimits: "CPU time, file size, open files, core dumps, locked memory and stack are bounded",
  descriptors: "a program has 0, 1 and 2, and nothing that the server has open",
  environment: "a program has a minimal one, and no variable of the server's",
};

/** @param layers of an engine that has just built a sandbox */
export function heldLayers(layers: Layers): readonly HostLayer[] {
  return Object.entries(HELD).map(([name, held]): HostLayer => {
    const ok = layers[name] === true;
    return {
      name,
      ok,
      isRequired: false,
      detail: ok ? held : "not in force: the sandbox is off",
      fix: ok ? null : "Use --sandbox auto",
    };
  });
}
