/** The local engine from settings, for the commands that run programs on this host. */

import { CprgError } from "../core/errors.ts";
import type { Log } from "../core/log.ts";
import { type LocalEngine, openLocalEngine } from "../sandbox/engine.ts";
import type { EngineOptions } from "../sandbox/engine-contract.ts";
import { parseSeccompPolicy } from "../sandbox/seccomp/policy.ts";
import type { LoadedConfig } from "./config.ts";
import type { Settings } from "./config-table.ts";
import type { JsonLog } from "./log-json.ts";

/**
 * Opens the engine.
 *
 * @param wishes a command that runs one program wants no pool, and no proof but that program
 * @throws CprgError when a layer is missing that may not be, or, in production, when any is
 */
export async function openEngine(
  config: LoadedConfig,
  log: JsonLog,
  wishes: Pick<EngineOptions, "pool" | "isProven"> = {},
): Promise<LocalEngine> {
  const { settings } = config;
  if (settings.env === "production" && settings.sandbox === "off") {
    throw refusedInProduction("the sandbox is off", "Remove CPRG_SANDBOX=off");
  }
  const options = engineOptions(settings, log.scope("sandbox"));
  const engine = await openLocalEngine({ ...options, ...wishes });
  const { missing } = engine;
  if (settings.env === "production" && missing.length > 0) {
    await engine.close();
    const state = `missing on this host: ${missing.join(", ")}`;
    throw refusedInProduction(state, '"cprg doctor" says how to mend it');
  }
  return engine;
}

/**
 * What the settings mean for an engine.
 *
 * @throws CprgError `invalid_argument` where a seccomp setting is wrong, or not for production
 */
export function engineOptions(settings: Settings, log: Log): EngineOptions {
  return {
    runDir: settings.runDir,
    dataDir: settings.dataDir,
    mode: settings.sandbox,
    allowMissing: settings.allowMissing,
    binds: settings.binds,
    interpreters: interpreters(settings),
    seccomp: parseSeccompPolicy({
      seccomp: settings.seccomp,
      allow: settings.seccompAllow.join(","),
      unsafe: settings.seccompUnsafe,
      production: settings.env === "production",
    }),
    ...(settings.cgroup === null ? {} : { cgroupParent: settings.cgroup }),
    log,
  };
}

function interpreters({ python, node, bash }: Settings): Record<string, string> {
  const named = Object.entries({ python, node, bash });
  return Object.fromEntries(named.flatMap(([name, path]) => (path === null ? [] : [[name, path]])));
}

function refusedInProduction(state: string, hint: string): CprgError {
  return new CprgError("failed_precondition", `Cannot start in production: ${state}`, { hint });
}
