/** Where things are kept: the data and run directories, and the key file in the first. */

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";

/** Whose directories are looked for. */
export interface Whose {
  readonly uid: number;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Default data directory: `/var/lib/cprg` for root, else `$XDG_DATA_HOME/cprg`. */
export function defaultDataDir({ uid, env }: Whose): string {
  if (uid === 0) return "/var/lib/cprg";
  return join(xdg(env["XDG_DATA_HOME"]) ?? join(env["HOME"] || homedir(), ".local/share"), "cprg");
}

/**
 * Default run directory: `/run/cprg` for root, else `$XDG_RUNTIME_DIR/cprg`, else `run` in the data
 * directory where no session made one.
 */
export function defaultRunDir(whose: Whose, dataDir: string): string {
  if (whose.uid === 0) return "/run/cprg";
  const runtime = xdg(whose.env["XDG_RUNTIME_DIR"]);
  return runtime === null ? join(dataDir, "run") : join(runtime, "cprg");
}

/** The key made at first start. */
export function keyFile(dataDir: string): string {
  return join(dataDir, "api-key");
}

/** Relative values are to be ignored (XDG Base Directory Specification 0.8). */
function xdg(value: string | undefined): string | null {
  return value !== undefined && isAbsolute(value) ? value : null;
}
