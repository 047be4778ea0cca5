import { expect, test } from "bun:test";
import { SETTING_NAMES, tomlKey } from "../../src/cli/config-table.ts";
import { installPages } from "../gen/settings-table.ts";

test("INSTALL.md lists every setting as it is (make gen writes it)", () => {
  const { now, wanted } = installPages();
  expect(now).toBe(wanted);
  for (const name of SETTING_NAMES) expect(now).toContain(`| \`${tomlKey(name)}\` |`);
});
