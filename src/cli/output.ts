/** How results are shown: tables for people, JSON for programs, colour only on a terminal. */

import type { ByteSink, Terminal } from "./terminal.ts";

/** Colours in use. */
export type Colour = "red" | "green" | "yellow" | "dim" | "bold";

const CODES: Readonly<Record<Colour, number>> = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 };

/** Paints text for a sink, or leaves it alone. */
export type Paint = (colour: Colour, text: string) => string;

/** Colour on a terminal, unless NO_COLOR is set (https://no-color.org) or TERM is `dumb`. */
export function paintFor(sink: ByteSink, env: Terminal["env"]): Paint {
  const isColoured = sink.isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return (colour, text) => (isColoured ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text);
}

/** A cell: text, and a colour that does not count for the width. */
export type Cell = string | { readonly text: string; readonly colour: Colour };

/** Aligns columns two blanks apart; the last one is not padded. */
export function table(header: readonly string[], rows: readonly (readonly Cell[])[], paint: Paint) {
  const cells = [header.map((text) => ({ text, colour: "dim" as const })), ...rows.map(cleanRow)];
  const widths = header.map((_, column) =>
    Math.max(...cells.map((row) => Bun.stringWidth(row[column]?.text ?? ""))),
  );
  const lines = cells.map((row) =>
    row
      .map(({ text, colour }, column) => {
        const painted = colour === undefined ? text : paint(colour, text);
        const gap = (widths[column] ?? 0) - Bun.stringWidth(text);
        return column === row.length - 1 ? painted : painted + " ".repeat(gap);
      })
      .join("  ")
      .trimEnd(),
  );
  return `${lines.join("\n")}\n`;
}

function cleanRow(row: readonly Cell[]) {
  return row.map((cell) =>
    typeof cell === "string"
      ? { text: printable(cell), colour: undefined }
      : { text: printable(cell.text), colour: cell.colour },
  );
}

/**
 * Text that cannot drive a terminal: control characters become `\xNN`. Everything that a program in
 * a sandbox or a server may have chosen goes through it before a person sees it.
 */
export function printable(text: string): string {
  return text.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** JSON for programs: indented, one value, a newline at the end. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** `1.5 KiB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return step === 0 ? `${bytes} B` : `${(bytes / 1024 ** step).toFixed(1)} ${units[step]}`;
}

/** `850 ms`, `12.3 s`, `4 min 5 s`. */
export function formatDuration(durationMs: number): string {
  if (durationMs < 1000) return `${Math.round(durationMs)} ms`;
  if (durationMs < 60_000) return `${(durationMs / 1000).toFixed(1)} s`;
  const seconds = Math.round(durationMs / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
