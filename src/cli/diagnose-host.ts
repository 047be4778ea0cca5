/** The report of `cprg doctor`, for people and for programs. */

import { silentLog } from "../core/log.ts";
import { type HostLayer, type HostReport, hostReport } from "../sandbox/host.ts";
import { type ConfigInput, loadConfig } from "./config.ts";
import { engineOptions } from "./engine.ts";
import { engineFlagValues } from "./engine-flags.ts";
import { EXIT } from "./exit-code.ts";
import { type Cell, jsonText, type Paint, paintFor, printable, table } from "./output.ts";
import type { Terminal } from "./terminal.ts";

/** Looks at the host and prints what it found; returns the exit code. */
export async function diagnoseHost(
  flags: ConfigInput["flags"],
  terminal: Terminal,
): Promise<number> {
  const input = { env: terminal.env, uid: terminal.uid, flags: engineFlagValues(flags) };
  const { settings } = await loadConfig(input);
  const report = await hostReport(engineOptions(settings, silentLog));
  const paint = paintFor(terminal.stdout, terminal.env);
  const isUsable = report.layers.every(({ ok, isRequired }) => ok || !isRequired);
  const text =
    flags["json"] === true ? jsonText(toJson(report, isUsable)) : reportText(report, paint);
  await terminal.stdout.write(text);
  return isUsable ? EXIT.ok : EXIT.failed;
}

/** Names as everywhere in JSON of cprg. */
function toJson({ layers, ...host }: HostReport, isUsable: boolean): unknown {
  return {
    ok: isUsable,
    ...host,
    layers: layers.map(({ isRequired, ...layer }) => ({ ...layer, required: isRequired })),
  };
}

/** The report as a page of text. */
export function reportText(report: HostReport, paint: Paint): string {
  const { kernel, arch, uid, cgroup, distribution, container, layers } = report;
  const around = container === null ? "" : `, in ${container}`;
  const host = `${distribution}, kernel ${kernel} ${arch}, uid ${uid}, cgroup ${cgroup ?? "none"}${around}`;
  const rows = layers.map((layer): Cell[] => [stateCell(layer), layer.name, layer.detail]);
  const fixes = layers.flatMap(({ name, ok, fix }) =>
    ok || fix === null ? [] : [fixText(name, fix)],
  );
  const advice =
    fixes.length === 0 ? "" : `\n${paint("bold", "To mend it:")}\n${fixes.join("\n")}\n`;
  return `${printable(host)}\n\n${table(["STATE", "LAYER", "FOUND"], rows, paint)}${advice}`;
}

/** Beneath one another where it is more than a line, so that it can be copied as it is. */
function fixText(name: string, fix: string): string {
  const lines = fix.split("\n").map(printable);
  return lines.length === 1
    ? `  ${printable(name)}: ${lines[0]}`
    : [`  ${printable(name)}:`, ...lines.map((line) => `    ${line}`)].join("\n");
}

function stateCell({ ok, isRequired }: HostLayer): Cell {
  if (ok) return { text: "ok", colour: "green" };
  return isRequired ? { text: "missing", colour: "red" } : { text: "weaker", colour: "yellow" };
}
