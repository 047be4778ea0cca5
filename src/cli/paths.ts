/** Where things are kept: the data and run directories, and the key file in the first. */

import { accessSync, constants, existsSync } from "node:fs";
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
 * Default run directory: `/run/cprg` for root, else `$XDG_RUNTIME_DIR/cprg`, else `/tmp/cprg-UID`
 * where no session made one, or that of another user was inherited (su, sudo).
 */
export function defaultRunDir(whose: Whose): string {
  if (whose.uid === 0) return "/run/cprg";
  const runtime = xdg(whose.env["XDG_RUNTIME_DIR"]);
  return runtime === null || isClosed(runtime) ? `/tmp/cprg-${whose.uid}` : join(runtime, "cprg");
}

/** Whether a directory is there and this process may not write to it. */
function isClosed(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK | constants.X_OK);
    return false;
  } catch {
    // What is not there can be made, or fails with its own name in the error.
    return existsSync(directory);
  }
}

/** The key made at first start. */
export function keyFile(dataDir: string): string {
  return join(dataDir, "api-key");
}

/** Relative values are to be ignored (XDG Base Directory Specification 0.8). */
function xdg(value: string | undefined): string | null {
  return value !== undefined && isAbsolute(value) ? value : null;
}
