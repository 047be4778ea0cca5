// The sources keep the folder table of ARCHITECTURE.md.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { checkExits, checkImports, findSpecifiers } from "./import-rules.ts";

const top = join(import.meta.dir, "../..");
const transpiler = new Bun.Transpiler({ loader: "ts" });

const paths = [...new Bun.Glob("src/**/*.ts").scanSync({ cwd: top })].sort();
const sources = await Promise.all(
  paths.map(async (path) => [path, await Bun.file(join(top, path)).text()] as const),
);

test("checkImports() finds no violation in src/", () => {
  const imports = sources.map(([path, source]) => {
    // The transpiler sees every import that has code; the patterns add `import type`.
    const scanned = transpiler.scanImports(source).map((found) => found.path);
    return [path, [...new Set([...scanned, ...findSpecifiers(source)])]] as const;
  });
  expect(imports.length).toBeGreaterThan(0);
  expect(checkImports(Object.fromEntries(imports))).toEqual([]);
});

test("checkExits() finds process.exit in main.ts alone", () => {
  // Transpiling drops comments, so that they may speak of process.exit.
  const code = sources
    .filter(([path]) => !path.endsWith(".d.ts"))
    .map(([path, source]) => [path, transpiler.transformSync(source)] as const);
  expect(checkExits(Object.fromEntries(code))).toEqual([]);
});

test("the library of models is loaded when it is used, not with the program", async () => {
  const path = join(top, "src/control-plane/runners/model-library.js");
  const code = await Bun.file(path).text();
  expect(code.match(/\bimport\("(?:ai|@ai-sdk\/[a-z-]+)"\)/g)).toHaveLength(3);
  expect(code).not.toMatch(/^\s*import\s[^(]/m);
});
