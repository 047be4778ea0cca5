/** The environment of programs: a minimal one; the server's own never passes. */

import { HOME } from "./root-plan.ts";

const BASE: Readonly<Record<string, string>> = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME,
  USER: "agent",
  LANG: "C.UTF-8",
  TMPDIR: "/tmp",
};

/** The minimal environment, and what the caller names. */
export function sandboxVariables(
  own: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  return { ...BASE, ...own };
}
