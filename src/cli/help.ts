/** Text of `--help`: one layout for every command. */

import type { Command, FlagSpec } from "./command.ts";
import { HELP_FLAG } from "./flags.ts";

const WIDTH = 96;

/** Help of one command. */
export function commandHelp(command: Command): string {
  const sections = [
    ["Usage", command.help.usage.map((usage) => `cprg ${command.name} ${usage}`.trimEnd())],
    ["Description", command.help.description.flatMap(paragraph)],
    ["Flags", flagLines({ ...command.flags, help: HELP_FLAG })],
    ["Examples", command.help.examples.flatMap(({ line, does }) => [`# ${does}`, `$ ${line}`])],
  ] as const;
  const aliases =
    command.aliases.length === 0 ? [] : [`Same as: cprg ${command.aliases.join(", ")}`];
  const blocks = sections.map(([title, lines]) =>
    [`${title}:`, ...lines.map((line) => (line === "" ? "" : `  ${line}`))].join("\n"),
  );
  return `${[command.summary, ...aliases].join("\n")}\n\n${blocks.join("\n\n")}\n`;
}

/** Help of the program: what it is and its commands. */
export function programHelp(commands: readonly Command[]): string {
  const width = Math.max(...commands.map((command) => command.name.length));
  const lines = commands.map((command) => `  ${command.name.padEnd(width)}  ${command.summary}`);
  return `cprg runs programs in sandboxes on this machine.

Usage:
  cprg COMMAND [flags] [arguments]

Commands:
${lines.join("\n")}

Examples:
  # Run one line of Python in a sandbox
  $ cprg run -c 'print(6*7)'
  # Serve the HTTP API on http://127.0.0.1:7300
  $ cprg serve

"cprg COMMAND --help" says more.
`;
}

function paragraph(text: string, index: number): string[] {
  return [...(index === 0 ? [] : [""]), ...wrap(text, WIDTH - 2)];
}

function flagLines(flags: Readonly<Record<string, FlagSpec>>): string[] {
  const heads = Object.entries(flags).map(([name, flag]) => flagHead(name, flag));
  const column = Math.min(30, Math.max(...heads.map((head) => head.length)) + 2);
  return Object.values(flags).flatMap((flag, index) => {
    const head = heads[index] ?? "";
    const lines = wrap(flagDoc(flag), WIDTH - column - 2).map((line) => " ".repeat(column) + line);
    if (head.length + 2 > column) return [head, ...lines];
    return [head.padEnd(column) + (lines[0] ?? "").slice(column), ...lines.slice(1)];
  });
}

function flagHead(name: string, flag: FlagSpec): string {
  const short = flag.short === undefined ? "    " : `-${flag.short}, `;
  return `${short}--${name}${flag.kind === "switch" ? "" : ` ${flag.value}`}`;
}

function flagDoc(flag: FlagSpec): string {
  const notes = [
    ...(flag.kind === "list" ? ["repeatable"] : []),
    ...(flag.env === undefined ? [] : [`env ${flag.env}`]),
  ];
  return notes.length === 0 ? flag.doc : `${flag.doc} (${notes.join(", ")})`;
}

/** Breaks text at blanks into lines of at most `width` characters, where the words allow it. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
