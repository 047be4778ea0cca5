/** The settings as a table for the documentation, from the one table that the server reads. */

import {
  envName,
  flagName,
  SETTING_NAMES,
  SETTINGS,
  type Setting,
  type SettingName,
  tomlKey,
} from "./config-table.ts";
import { formatAddress } from "./settings-parse.ts";

/** A Markdown table of every setting: key of the file, flag, variable, default and meaning. */
export function settingsMarkdown(): string {
  const head = ["| key | flag | variable | default | |", "| --- | --- | --- | --- | --- |"];
  return [...head, ...SETTING_NAMES.map(row)].join("\n");
}

function row(name: SettingName): string {
  const spec: Setting<unknown> = SETTINGS[name];
  const flag = flagName(name);
  const variables = [envName(name), spec.alsoEnv].filter((variable) => variable !== undefined);
  const cells = [
    code(tomlKey(name)),
    flag === null ? "" : code(spec.kind === "switch" ? `--${flag}` : `--${flag} ${spec.value}`),
    variables.map(code).join(", "),
    defaultText(name),
    spec.doc,
  ];
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

/** Defaults that depend on the user are in the text. */
function defaultText(name: SettingName): string {
  if (["dataDir", "db", "runDir", "ceilings", "log"].includes(name)) return "";
  const value: unknown = SETTINGS[name].fallback({ uid: 0, env: {}, dataDir: "" });
  if (value === null || (Array.isArray(value) && value.length === 0)) return "";
  if (typeof value === "object")
    return code(formatAddress(value as Parameters<typeof formatAddress>[0]));
  return code(String(value));
}

function code(text: string): string {
  return `\`${text}\``;
}
