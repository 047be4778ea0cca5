// SECURITY.md and the code name the same capabilities.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { SERVER_CAPABILITIES } from "../../src/sandbox/server-capabilities.ts";

test("SECURITY.md lists what the server keeps, in the order of the table in the code", async () => {
  const text = await Bun.file(join(import.meta.dir, "../../SECURITY.md")).text();
  const section = /^## What the server keeps\n([\s\S]*?)^## /m.exec(text)?.[1] ?? "";
  const rows = [...section.matchAll(/^\| ([A-Z_]+) \|/gm)].map(([, name]) => name ?? "");
  expect(rows).toEqual(SERVER_CAPABILITIES.map(({ name }) => name));
});
