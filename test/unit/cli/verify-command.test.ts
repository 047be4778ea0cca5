// `cprg verify` of what is no export: every refusal names the file at fault.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execute } from "../../../src/cli/execute.ts";
import { openSigningKey } from "../../../src/store/signing-key.ts";
import { memoryTerminal } from "./memory-terminal.ts";

let folder = "";
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cprg-verify-"));
  await openSigningKey(folder);
  writeFileSync(join(folder, "text"), "hello\n");
});
afterAll(() => rmSync(folder, { recursive: true }));

async function verify(...words: string[]) {
  const terminal = memoryTerminal({ env: { CPRG_DATA_DIR: folder } });
  const code = await execute(["verify", ...words], terminal);
  return { code, out: terminal.out(), err: terminal.err() };
}

test("a directory, a device and a text are refused by their names", async () => {
  expect(await verify("/tmp")).toMatchObject({ code: 2, out: "" });
  expect((await verify("/tmp")).err).toContain('Cannot read "/tmp": it is a directory');
  expect(await verify("/dev/null")).toMatchObject({ code: 1, out: "" });
  expect((await verify("/dev/null")).err).toContain("refused: /dev/null: line 1: ");
  const text = join(folder, "text");
  expect((await verify(text)).err).toContain(`refused: ${text}: line 1: `);
  expect((await verify(join(folder, "none"))).err).toContain(`none": ENOENT`);
});

test("a file that is not there is named before a key that is not there", async () => {
  const refused = await verify("/nonexistent/run.ndjson", "--data-dir", "/nonexistent");
  expect(refused).toMatchObject({ code: 2, out: "" });
  expect(refused.err).toContain('Cannot read "/nonexistent/run.ndjson": ENOENT');
});

test("a key file that holds no key is refused by its name", async () => {
  const text = join(folder, "text");
  for (const key of ["/dev/null", text]) {
    const refused = await verify(text, "--key", key);
    expect(refused).toMatchObject({ code: 2, out: "" });
    expect(refused.err).toContain(`Cannot use key "${key}": it holds no Ed25519 key in PEM`);
  }
  expect((await verify(text, "--key", "/tmp")).err).toContain('"/tmp": it is a directory');
});
