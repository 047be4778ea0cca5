import { expect, test } from "bun:test";
import { cpSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { TempDir } from "./samples.ts";

const root = resolve(import.meta.dir, "../..");

const PROGRAM = `
import { openStore } from "./store/open.ts";
const store = await openStore({ path: process.argv[2] ?? "" });
const [line] = await store.events.append("exec:a", [
  { at: 0, draft: { kind: "stdout", data: "from the executable" } },
]);
console.log(line?.line);
await store.close();
`;

test("the Worker is found inside an executable, with its folder gone and from anywhere", async () => {
  using folder = new TempDir();
  const src = folder.join("src");
  for (const part of ["core", "store"]) {
    cpSync(join(root, "src", part), join(src, part), { recursive: true });
  }
  writeFileSync(join(src, "main.ts"), PROGRAM);
  symlinkSync(join(root, "node_modules"), folder.join("node_modules"));
  // The flags that matter to Workers, as the Makefile has them.
  const build = Bun.spawnSync(
    [
      process.execPath,
      ...["build", "--compile", "--production", "--minify", "--bytecode", "--format=esm"],
      ...["--compile-exec-argv=--disallow-code-generation-from-strings=strict"],
      ...["--reject-unresolved", "src/main.ts", "src/store/store-worker.ts"],
      ...["--outfile", "program"],
    ],
    { cwd: folder.path, stderr: "pipe" },
  );
  expect([build.exitCode, build.exitCode === 0 ? "" : build.stderr.toString()]).toEqual([0, ""]);
  rmSync(src, { recursive: true });
  const run = Bun.spawnSync([folder.join("program"), folder.join("cprg.db")], {
    cwd: "/",
    env: {},
  });
  expect(run.stderr.toString()).toBe("");
  expect(JSON.parse(run.stdout.toString())).toMatchObject({ data: "from the executable" });
  expect(run.exitCode).toBe(0);
}, 60_000);
