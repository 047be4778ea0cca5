/** Flags of commands that run programs in this process: the settings of the engine, no server's. */

import type { FlagSpecs } from "./command.ts";
import { type ConfigInput, settingFlags } from "./config.ts";
import { flagName, type SettingName } from "./config-table.ts";

const ENGINE_SETTINGS: readonly SettingName[] = [
  "sandbox",
  "allowMissing",
  "seccomp",
  "seccompAllow",
  "seccompUnsafe",
  "binds",
  "cgroup",
  "dataDir",
  "runDir",
  "python",
  "node",
  "bash",
];

/** The flags. */
export function engineFlags(): FlagSpecs {
  return settingFlags(ENGINE_SETTINGS);
}

/** Their values alone: another flag of the command may have the name of another setting. */
export function engineFlagValues(flags: ConfigInput["flags"]): ConfigInput["flags"] {
  const names = ["config", ...ENGINE_SETTINGS.map(flagName)];
  return Object.fromEntries(Object.entries(flags).filter(([name]) => names.includes(name)));
}
