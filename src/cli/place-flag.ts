/** `--place`: on which worker of a server something is to run. */

import { splitPair } from "./settings-parse.ts";

/** What `--place` takes for any worker. */
const ANY = "any";

/** The flag, for commands that place something. */
export const PLACE_FLAG = {
  place: {
    kind: "list",
    value: "NAME=VALUE",
    doc: "On a worker of the server that has this label; any: on any worker",
  },
} as const;

/** What is sent for it; nothing without the flag. @throws CprgError USAGE for what is no label */
export function placementField(texts: readonly string[]): {
  readonly placement?: { readonly labels: Readonly<Record<string, string>> };
} {
  if (texts.length === 0) return {};
  const pairs = texts.filter((text) => text !== ANY).map((text) => splitPair(text, "--place"));
  return { placement: { labels: Object.fromEntries(pairs) } };
}
