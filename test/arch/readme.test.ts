// README.md and the Makefile name the same commands.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { jobs } from "../../src/cli/commands/jobs.ts";
import { run } from "../../src/cli/commands/run.ts";
import { commandHelp } from "../../src/cli/help.ts";
import { ARTIFACTS_JOB_BYTES_MAX, ARTIFACTS_JOB_FILES_MAX } from "../../src/store/artifacts.ts";

const top = join(import.meta.dir, "../..");

async function read(name: string): Promise<string> {
  return await Bun.file(join(top, name)).text();
}

/** The lines of all fenced blocks, in order, without prompts and blank lines. */
function findFencedCommands(markdown: string): string[] {
  return [...markdown.matchAll(/^```[^\n]*\n([\s\S]*?)^```/gm)]
    .flatMap((block) => (block[1] ?? "").split("\n"))
    .map((line) => line.replace(/^\$ /, "").trim())
    .filter((line) => line !== "");
}

/** The targets after `make` in inline code and fenced blocks; prose such as "make sure" is none. */
function findMakeTargets(markdown: string): string[] {
  const inline = [...markdown.matchAll(/`(make [^`\n]+)`/g)].map((match) => match[1] ?? "");
  const commands = [...inline, ...findFencedCommands(markdown)];
  return commands
    .filter((command) => /^make\s/.test(command))
    .flatMap((command) =>
      command
        .replace(/\s#.*$/, "")
        .split(/\s+/)
        .slice(1),
    )
    .filter((word) => /^[a-z][a-z0-9-]*$/.test(word));
}

test("README's first two commands are make demo and make test", async () => {
  const commands = findFencedCommands(await read("README.md"));
  const names = commands.slice(0, 2).map((command) => command.replace(/\s+#.*$/, ""));
  expect(names).toEqual(["make demo", "make test"]);
});

test("every make target that README names exists", async () => {
  const makefile = await read("Makefile");
  const targets = new Set(
    [...makefile.matchAll(/^([a-z][a-z0-9-]*):(?!=)/gm)].map((match) => match[1]),
  );
  const named = findMakeTargets(await read("README.md"));
  expect(named.length).toBeGreaterThan(1);
  expect(named.filter((name) => !targets.has(name))).toEqual([]);
});

test("README and the help of run and jobs say where artifacts go, and how they are had", async () => {
  const bounds = new RegExp(
    `${ARTIFACTS_JOB_FILES_MAX} files and ${ARTIFACTS_JOB_BYTES_MAX / 1024 ** 2} MiB`,
  );
  const runSection = /^## Run something\n([\s\S]*?)^## /m.exec(await read("README.md"))?.[1] ?? "";
  for (const text of [runSection, commandHelp(run)]) {
    const words = text.replace(/\s+/g, " ");
    for (const part of ["/workspace/out", "which it makes itself", "--out"]) {
      expect(words).toContain(part);
    }
    expect(words).toMatch(bounds);
    expect(words).toMatch(/\/v1\/jobs\/(?:ID|\{id\})\/files/);
  }
  expect(commandHelp(jobs)).toContain("/workspace/out");
  expect(commandHelp(jobs)).toContain("/v1/jobs/ID/files");
});

test("findMakeTargets() reads inline code and fences, and no prose", () => {
  const markdown = "We make sure.\n`make a-1`\n```sh\n$ make b ARCH=x # c\ncd d\n```\n";
  expect(findMakeTargets(markdown)).toEqual(["a-1", "b"]);
});
