// test/run.ts is red for everything that `bun test` alone may let pass: each case is a small
// checkout in a temporary folder with one way to go wrong.

import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const runner = join(import.meta.dir, "../run.ts");
const host = join(import.meta.dir, "../helpers/host.ts");

interface Run {
  readonly exitCode: number;
  readonly lastLine: string;
  readonly stdout: string;
}

async function run(
  files: Record<string, string>,
  options: { args?: string[]; mustRun?: boolean } = {},
): Promise<Run> {
  const folder = mkdtempSync(join(tmpdir(), "cprg-run-test-"));
  try {
    for (const [path, text] of Object.entries(files)) await Bun.write(join(folder, path), text);
    const child = Bun.spawn([process.execPath, runner, ...(options.args ?? [])], {
      cwd: folder,
      env: { ...process.env, CPRG_TEST_MUST_RUN: options.mustRun ? "1" : "0" },
      stdout: "pipe",
      stderr: "ignore",
    });
    const stdout = await child.stdout.text();
    const lastLine = stdout.trimEnd().split("\n").at(-1) ?? "";
    return { exitCode: await child.exited, lastLine, stdout };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function suite(body: string): string {
  return `import { expect, test } from "bun:test";\n${body}\n`;
}

const green = suite('test("a", () => expect(1).toBe(1)); test("b", () => {});');

test("run.ts is green for passing suites and adds up their counts", async () => {
  const files = { "test/unit/a.test.ts": green, "test/arch/a.test.ts": green };
  const result = await run(files);
  expect(result).toMatchObject({ exitCode: 0, lastLine: "4 passed, 0 failed, 0 skipped" });
  expect(result.stdout).toContain("unit: 2 passed, 0 failed, 0 skipped");
});

test("run.ts runs only the suites that it is given", async () => {
  const files = { "test/unit/a.test.ts": green, "test/arch/a.test.ts": suite("throw 1;") };
  const result = await run(files, { args: ["unit"] });
  expect(result).toMatchObject({ exitCode: 0, lastLine: "2 passed, 0 failed, 0 skipped" });
});

test("run.ts runs the sandbox suite a second time as a user, wherever the checkout is", async () => {
  const body = suite(`test("a", () => {
    expect(process.getuid()).not.toBe(0);
    expect(require("node:fs").readFileSync("test/sandbox/a.test.ts", "utf8")).toContain("getuid");
    require("node:fs").writeFileSync(process.env.TMPDIR + "/a", "");
  });`);
  const result = await run({ "test/sandbox/a.test.ts": body }, { args: ["rootless"] });
  expect(result).toMatchObject({ exitCode: 0, lastLine: "1 passed, 0 failed, 0 skipped" });
  expect(result.stdout).toMatch(/ground rootless: Linux \S+, uid [1-9]\d*, /);
});

test("run.ts is red for a suite that does not exist", async () => {
  const result = await run({ "test/unit/a.test.ts": green }, { args: ["none"] });
  expect(result.exitCode).toBe(1);
});

test.each([
  ["a failed test", green.replace("toBe(1)", "toBe(2)"), "1 passed, 1 failed, 0 skipped"],
  ["a file that does not load", 'import "./none.ts";', "0 passed, 2 failed, 0 skipped"],
  ["a file without tests", "export {};", "0 passed, 1 failed, 0 skipped"],
  [
    "a test that ends the process",
    suite('test("a", () => process.exit(0));'),
    "0 passed, 1 failed, 0 skipped",
  ],
])("run.ts is red for %s", async (_, source, lastLine) => {
  expect(await run({ "test/unit/a.test.ts": source })).toMatchObject({ exitCode: 1, lastLine });
});

test("run.ts is red for a file that does not load beside one that passes", async () => {
  const files = { "test/unit/a.test.ts": green, "test/unit/b.test.ts": 'import "./none.ts";' };
  expect(await run(files)).toMatchObject({
    exitCode: 1,
    lastLine: "2 passed, 1 failed, 0 skipped",
  });
});

test("run.ts is red below the floor, green on it", async () => {
  const files = (floor: number): Record<string, string> => ({
    "test/unit/a.test.ts": green,
    "test/floor.json": `{ "unit": ${floor} }`,
  });
  expect(await run(files(3))).toMatchObject({ exitCode: 1 });
  expect(await run(files(2))).toMatchObject({ exitCode: 0 });
});

test("run.ts is red for a suite with a floor that has vanished", async () => {
  const files = { "test/unit/a.test.ts": green, "test/floor.json": '{ "unit": 2, "e2e": 1 }' };
  expect((await run(files)).stdout).toMatch(/\n {2}e2e /);
  expect(await run(files)).toMatchObject({ exitCode: 1 });
});

test("run.ts is red for a folder with tests that no suite names", async () => {
  const files = { "test/unit/a.test.ts": green, "test/other/a.test.ts": green };
  expect(await run(files)).toMatchObject({
    exitCode: 1,
    lastLine: "2 passed, 1 failed, 0 skipped",
  });
});

const skipping = suite('test("a", () => {}); test.skipIf(true)("b", () => {});');

test("run.ts counts a skip, and fails it under CPRG_TEST_MUST_RUN unless it is named", async () => {
  const files = { "test/unit/a.test.ts": skipping };
  const named = {
    ...files,
    "test/allowed-skips.json": '{ "needs": {}, "tests": { "test/unit/a.test.ts > b": "why" } }',
  };
  expect((await run(files)).lastLine).toBe("1 passed, 0 failed, 1 skipped");
  expect((await run(files, { mustRun: true })).lastLine).toBe("1 passed, 1 failed, 0 skipped");
  expect((await run(named, { mustRun: true })).lastLine).toBe("1 passed, 0 failed, 1 skipped");
});

const demanding = suite(`import { requireHost } from ${JSON.stringify(host)};
const gate = requireHost({ programs: ["cprg-no-such-program"] });
gate.describe("group", () => { test("a", () => {}); });
gate.test("single", () => {});`);

test("requireHost() skips what the machine lacks, and fails it under CPRG_TEST_MUST_RUN", async () => {
  const files = { "test/unit/a.test.ts": demanding };
  expect((await run(files)).lastLine).toBe("0 passed, 0 failed, 2 skipped");
  expect((await run(files, { mustRun: true })).lastLine).toBe("0 passed, 2 failed, 0 skipped");
});

test("requireHost() runs what the machine can do", async () => {
  const source = demanding.replace("cprg-no-such-program", "sh");
  const result = await run({ "test/unit/a.test.ts": source }, { mustRun: true });
  expect(result.lastLine).toBe("2 passed, 0 failed, 0 skipped");
});
