import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseLimits } from "../../src/core/limits.ts";
import type { LocalEngine } from "../../src/sandbox/engine.ts";
import { closedAncestor } from "../../src/sandbox/instance.ts";
import { requireHost } from "../helpers/host.ts";
import { finish, makeDirs, openTestEngine, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

const HELLO: Readonly<Record<string, string>> = {
  python: "import sys\nprint(6 * 7, sys.argv[1:])\n",
  node: "console.log(6 * 7, process.argv.slice(2))\n",
  bash: 'echo $((6 * 7)) "[$*]"\n',
  javascript: "console.log(6 * 7, process.argv.slice(2))\n",
  typescript: "const x: number = 6 * 7;\nconsole.log(x, process.argv.slice(2) as string[])\n",
};

/** Runs code as a job would. */
async function runCode(engine: LocalEngine, name: string, code: string, args: readonly string[]) {
  const language = await engine.languages.resolve(name);
  const lease = await engine.open(await engine.reserve(parseLimits({ mem_mb: 512 })));
  try {
    await lease.putFile(`/workspace/${language.fileName}`, Buffer.from(code));
    const exec = await lease.exec({
      executable: language.executable,
      arguments: language.command(args),
      variables: { PATH: "/usr/bin:/bin", HOME: lease.home, ...language.variables },
    });
    return await finish(exec);
  } finally {
    await lease.release();
  }
}

host.describe("languages", () => {
  const bench = useEngine();

  test("every language of this host runs a program with its arguments", async () => {
    const languages = await bench.engine.languages.list();
    const names = languages.map(({ name }) => name);
    // Python is what the other tests use; the executable itself is there where it can be reached.
    const own = closedAncestor(process.execPath) === null ? ["javascript", "typescript"] : [];
    for (const name of ["python", ...own]) expect(names).toContain(name as never);
    for (const { name, version, executable } of languages) {
      expect(version).toMatch(/^\d+\.\d+/);
      expect(executable).toStartWith("/");
      const ran = await runCode(bench.engine, name, HELLO[name] ?? "", ["a b", "c"]);
      expect([name, ran.stdout.replaceAll(/\s+/g, " "), ran.stderr]).toEqual([
        name,
        expect.stringMatching(/^42 \[.*a b.*c.*\] $/),
        "",
      ]);
    }
  });

  test("a language is looked for once", async () => {
    const [left, right] = await Promise.all([
      bench.engine.languages.resolve("python"),
      bench.engine.languages.resolve("python"),
    ]);
    expect(left).toBe(right);
  });

  test("an unknown language is refused, naming those that are known", async () => {
    expect(
      await bench.engine.languages.resolve("cobol").catch((error: unknown) => error),
    ).toMatchObject({
      code: "invalid_argument",
      field: "language",
      hint: expect.stringContaining("python"),
    });
  });

  test("the interpreter is one that is inside: not the shim of a home directory", async () => {
    const python = await bench.engine.languages.resolve("python");
    expect(python.executable).toMatch(/^\/usr\/(local\/)?bin\/python3$/);
  });
});

host.test(
  "an interpreter that is not in the root is missing, and the error says how to get it",
  async () => {
    const dirs = makeDirs();
    const shims = join(dirs.top, "shims");
    mkdirSync(shims);
    const shim = join(shims, "python3");
    writeFileSync(shim, "#!/bin/sh\necho Python 3.99.0\n");
    chmodSync(shim, 0o755);
    chmodSync(dirs.top, 0o711);
    const engine = await openTestEngine(dirs, {
      interpreters: { python: shim, node: "/bin/false" },
    });
    try {
      const missing = (name: string) =>
        engine.languages.resolve(name).catch((error: unknown) => error);
      expect(await missing("python")).toMatchObject({
        code: "failed_precondition",
        reason: "NO_INTERPRETER",
        message: expect.stringContaining("python"),
        hint: expect.stringContaining("CPRG_BINDS"),
      });
      expect(await missing("node")).toMatchObject({ reason: "NO_INTERPRETER" });
      const names = (await engine.languages.list()).map(({ name }) => name);
      expect(names).not.toContain("python");
      if (closedAncestor(process.execPath) === null) expect(names).toContain("typescript");
    } finally {
      await engine.close();
    }
    // The same shim counts once its directory is in the root.
    const bound = await openTestEngine(dirs, {
      binds: [{ source: shims, target: shims }],
      interpreters: { python: shim },
    });
    expect((await bound.languages.resolve("python")).version).toBe("3.99.0");
    await bound.close();
    rmSync(dirs.top, { recursive: true });
  },
);
