// The checker of imports.test.ts flags what it must: planted violations, one at a time.

import { describe, expect, test } from "bun:test";
import { checkExits, checkImports, findSpecifiers, type ImportsByFile } from "./import-rules.ts";

/** A small tree that keeps every rule. */
const sound: ImportsByFile = {
  "src/main.ts": ["./cli/serve.ts"],
  "src/cli/serve.ts": ["../http/app.ts", "../store/database.ts", "../worker/worker.ts"],
  "src/cli/run.ts": ["../sdk/client.ts", "node:util"],
  "src/http/app.ts": ["hono", "../jobs/queue.ts", "../tenancy/keys.ts"],
  "src/http/dashboard.ts": ["hono", "../../public/index.html"],
  "src/worker/worker.ts": ["../bridge/mux.ts", "../sandbox/engine.ts", "../provider/contract.ts"],
  "src/sdk/index.ts": ["../control-plane/claims.ts", "../provider/contract.ts"],
  "src/sdk/client.ts": ["../core/errors.ts"],
  "src/jobs/queue.ts": ["../provider/contract.ts", "../store/database.ts"],
  "src/control-plane/claims.ts": ["../bridge/mux.ts", "../store/database.ts"],
  "src/attack/suite.ts": ["../sandbox/engine.ts", "../provider/contract.ts", "../core/errors.ts"],
  "src/dispatch/git.ts": ["../provider/contract.ts"],
  "src/sandbox/engine.ts": ["./native.ts", "../provider/contract.ts"],
  "src/sandbox/native.ts": ["bun:ffi", "../../ffi/layout.ts", "./embedded.ts"],
  "src/sandbox/embedded.ts": ["../../dist/ffi/x86_64/libcprg.so"],
  "src/bridge/mux.ts": ["../core/errors.ts", "../gen/bridge_pb.js"],
  "src/provider/contract.ts": ["../core/errors.ts"],
  "src/tenancy/keys.ts": ["../store/database.ts"],
  "src/store/database.ts": ["bun:sqlite", "../core/errors"],
  "src/core/errors.ts": ["./reasons", "node:crypto"],
  "src/core/reasons.ts": [],
  "src/ambient.d.ts": [],
};

test("checkImports() accepts a tree that keeps the table", () => {
  expect(checkImports(sound)).toEqual([]);
});

describe("checkImports() flags", () => {
  test.each([
    ["a folder without a place", "src/util/strings.ts", "./x.ts", "not in the table"],
    ["a file loose in src/", "src/helpers.ts", "./core/errors.ts", "not in the table"],
    ["an import of main", "src/cli/other.ts", "../main.ts", "cli may not import main"],
    ["the library of models", "src/control-plane/x.ts", "@ai-sdk/openai", "and late"],
    ["jobs importing http", "src/jobs/bad.ts", "../http/app.ts", "jobs may not import http"],
    ["store importing jobs", "src/store/bad.ts", "../jobs/queue.ts", "store may not import jobs"],
    ["http importing store", "src/http/bad.ts", "../store/database.ts", "http reaches the store"],
    ["http importing worker", "src/http/bad.ts", "../worker/worker.ts", "http may not import"],
    ["jobs importing dispatch", "src/jobs/bad.ts", "../dispatch/git.ts", "jobs may not import"],
    [
      "control-plane importing worker",
      "src/control-plane/bad.ts",
      "../worker/worker.ts",
      "may not",
    ],
    ["worker importing control-plane", "src/worker/bad.ts", "../control-plane/claims.ts", "bridge"],
    ["worker importing store", "src/worker/bad.ts", "../store/database.ts", "keeps no database"],
    ["worker importing tenancy", "src/worker/bad.ts", "../tenancy/keys.ts", "no keys"],
    ["attack importing jobs", "src/attack/bad.ts", "../jobs/queue.ts", "attack may not import"],
    ["attack importing store", "src/attack/bad.ts", "../store/database.ts", "sandboxes alone"],
    ["http importing attack", "src/http/bad.ts", "../attack/suite.ts", "command line alone"],
    ["sandbox importing attack", "src/sandbox/bad.ts", "../attack/suite.ts", "may not import"],
    ["bun:ffi in attack", "src/attack/bad.ts", "bun:ffi", "only src/sandbox/native.ts"],
    ["sdk importing jobs", "src/sdk/bad.ts", "../jobs/queue.ts", "over HTTP"],
    ["tenancy importing provider", "src/tenancy/bad.ts", "../provider/contract.ts", "may not"],
    ["provider importing sandbox", "src/provider/bad.ts", "../sandbox/engine.ts", "may not"],
    ["bridge importing tenancy", "src/bridge/bad.ts", "../tenancy/keys.ts", "may not import"],
    ["sandbox importing store", "src/sandbox/bad.ts", "../store/database.ts", "no SQLite"],
    ["core importing store", "src/core/bad.ts", "../store/database.ts", "nothing but core"],
    ["core importing a package", "src/core/bad.ts", "zod", "nothing but core"],
    ["core importing a node module", "src/core/bad.ts", "node:fs", "nothing but core"],
    ["core importing gen", "src/core/bad.ts", "../gen/bridge_pb.js", "nothing but core"],
    ["bun:ffi outside native.ts", "src/sandbox/bad.ts", "bun:ffi", "only src/sandbox/native.ts"],
    ["bun:ffi in embedded.ts", "src/sandbox/embedded.ts", "bun:ffi", "only src/sandbox/native.ts"],
    ["ffi/ outside native.ts", "src/store/bad.ts", "../../ffi/layout.ts", "native.ts touches"],
    ["dist/ outside embedded.ts", "src/cli/bad.ts", "../../dist/ffi/a.so", "files from dist/"],
    ["bun:sqlite outside store", "src/jobs/bad.ts", "bun:sqlite", "only src/store"],
    ["public/ outside dashboard.ts", "src/http/bad.ts", "../../public/a.css", "dashboard.ts takes"],
    ["hono in jobs", "src/jobs/bad.ts", "hono", "no HTTP types"],
    ["a part of hono in tenancy", "src/tenancy/bad.ts", "hono/factory", "no HTTP types"],
    ["hono in sandbox", "src/sandbox/bad.ts", "hono", "no HTTP types"],
    ["hono in provider", "src/provider/bad.ts", "hono", "no HTTP types"],
  ])("%s", (_, file, specifier, expected) => {
    const violations = checkImports({ ...sound, [file]: [specifier] });
    expect(violations).toContainEqual(expect.stringContaining(expected));
    expect(violations.every((violation) => violation.startsWith(file))).toBe(true);
  });

  test("a cycle of three files, once", () => {
    const violations = checkImports({
      "src/core/a.ts": ["./b"],
      "src/core/b.ts": ["./c.ts"],
      "src/core/c.ts": ["./a.js"],
    });
    expect(violations).toEqual([
      "import cycle: src/core/a.ts -> src/core/b.ts -> src/core/c.ts -> src/core/a.ts",
    ]);
  });

  test("a file that imports itself", () => {
    expect(checkImports({ "src/core/a.ts": ["./a.ts"] })).toHaveLength(1);
  });
});

describe("checkExits()", () => {
  test.each(["process.exit(1);", "process . exit ()", "process.abort();", "process?.exit(0)"])(
    "flags %s outside main.ts",
    (code) => {
      expect(checkExits({ "src/cli/serve.ts": code })).toHaveLength(1);
      expect(checkExits({ "src/main.ts": code })).toEqual([]);
    },
  );

  test.each(["process.exitCode = 1;", "child.process.exit(1);", 'run("process.exit(1)");'])(
    "accepts %s",
    (code) => {
      expect(checkExits({ "src/cli/serve.ts": code })).toEqual([]);
    },
  );
});

describe("findSpecifiers() finds", () => {
  test.each([
    ['import { a } from "./a.ts";'],
    ['import type { A } from "./a.ts";'],
    ['import a, { type B } from "./a.ts";'],
    ['import * as a from "./a.ts";'],
    ['import {\n  a,\n  type B,\n} from "./a.ts";'],
    ['import "./a.ts";'],
    ['export { a } from "./a.ts";'],
    ['export type { A } from "./a.ts";'],
    ['export * from "./a.ts";'],
    ['const a = await import("./a.ts");'],
    ['let a: import("./a.ts").A;'],
    ['const a = require("./a.ts");'],
    ['new Worker(new URL("./a.ts", import.meta.url));'],
    ['import a from "./a.ts" with { type: "file" };'],
  ])("%j", (source) => {
    expect(findSpecifiers(source)).toEqual(["./a.ts"]);
  });

  test("nothing in code that only looks like an import", () => {
    const source = '// import { a } from "./a.ts";\nconst b = Array.from("./b.ts");\n';
    expect(findSpecifiers(source)).toEqual([]);
  });
});
