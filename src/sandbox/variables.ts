/** The environment of programs: a minimal one; the server's own never passes. */

import { HOME } from "./root-plan.ts";

/** Names that only the runtime's own languages may set: they turn the executable into a CLI. */
const RUNTIME_PREFIX = "BUN_";

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

/** Without what would change how the executable itself behaves as a runtime. */
export function withoutRuntimeVariables(
  variables: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(variables).filter(([name]) => !name.startsWith(RUNTIME_PREFIX)),
  );
}
