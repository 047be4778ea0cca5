// The table of settings in INSTALL.md.
//   bun test/gen/settings-table.ts    writes it

import { readFileSync, writeFileSync } from "node:fs";
import { settingsMarkdown } from "../../src/cli/config-docs.ts";

const INSTALL = new URL("../../INSTALL.md", import.meta.url);
const BLOCK = /(<!-- settings -->\n)[\s\S]*?(\n<!-- \/settings -->)/;

/** INSTALL.md as it is, and as it should be. */
export function installPages(): { readonly now: string; readonly wanted: string } {
  const now = readFileSync(INSTALL, "utf8");
  if (!BLOCK.test(now)) throw new Error("INSTALL.md has no place for the settings");
  const wanted = now.replace(BLOCK, (_, begin, end) => `${begin}${settingsMarkdown()}${end}`);
  return { now, wanted };
}

if (import.meta.main) writeFileSync(INSTALL, installPages().wanted);
