// The shell runner, on a worker of this process that runs real programs.

import { expect, test } from "bun:test";
import {
  COLLECT_BYTES_MAX,
  COLLECT_FILE_BYTES_MAX,
  COLLECT_FILES_MAX,
  type CollectedFile,
} from "../../src/control-plane/runners/collect-files.ts";
import {
  SHELL_OUTPUT_BYTES_MAX,
  type ShellResult,
  shellRunner,
} from "../../src/control-plane/runners/shell.ts";
import {
  SHELL_COMMANDS_MAX,
  SHELL_PATTERNS_MAX,
  SHELL_TIMEOUT_SECONDS_MAX,
  shellInput,
} from "../../src/control-plane/runners/shell-input.ts";
import type { Json } from "../../src/core/task.ts";
import { TASK_RESULT_BYTES_MAX } from "../../src/store/task-rules.ts";
import { Ground } from "./ground.ts";

async function ground(): Promise<Ground> {
  const opened = await Ground.open();
  opened.plane.setRunner("shell", shellRunner());
  await opened.worker();
  return opened;
}

async function run({ plane }: Ground, input: Json) {
  const { id } = await plane.submit(input);
  const task = await plane.waitTask(id);
  return { ...task, result: task.result as unknown as ShellResult };
}

test("commands run in one place, one after another; their output is in result and log", async () => {
  await using there = await ground();
  const { id, result, status } = await run(there, {
    commands: ["echo one > f; echo said >&2", ["cat", "f"]],
  });
  expect(status).toBe("succeeded");
  expect(result.commands).toMatchObject([
    { exit_code: 0, stdout: "", stderr: "said\n" },
    { exit_code: 0, stdout: "one\n", stderr: "" },
  ]);
  const said: string[] = [];
  for await (const { line } of there.plane.events(id)) {
    const { kind, data } = JSON.parse(line);
    if (kind === "stdout") said.push(data);
  }
  expect(said.join("")).toBe("$ echo one > f; echo said >&2\nsaid\n$ cat f\none\n");
});

test("a command that fails ends the task and is named; with keep_going its code is in the result", async () => {
  await using there = await ground();
  const commands = ["true", "echo wrong >&2; exit 4", "echo on"];
  expect(await run(there, { commands })).toMatchObject({
    status: "failed",
    reason: "runner_error",
    error: "command 2 of 3 ended with exit code 4: wrong",
    result: null,
  });
  const { result } = await run(there, { commands, keep_going: true });
  expect(result.commands.map(({ exit_code }) => exit_code)).toEqual([0, 4, 0]);
  const killed = await run(there, { commands: ["kill -9 $$"], keep_going: true });
  expect(killed.result.commands[0]?.exit_code).toBe(137);
  const late = await run(there, { commands: ["sleep 1000"], timeout_seconds: 0.2 });
  expect(late).toMatchObject({ status: "failed", reason: "runner_error" });
});

test("files are collected by pattern: text as it is, other bytes in base64, links not at all", async () => {
  await using there = await ground();
  const { result } = await run(there, {
    commands: [
      "mkdir -p out/deep; printf é > out/a.txt; printf '\\377\\000' > out/deep/b.bin",
      "printf n > 'out/new\nline.txt'; printf d > out/-n; printf x > other; ln -s /etc/passwd out/link",
      `head -c ${COLLECT_FILE_BYTES_MAX + 1} /dev/zero > out/large`,
    ],
    collect: ["out/*", "none*"],
  });
  const files = Object.fromEntries(result.files.map(({ path, ...file }) => [path, file]));
  const utf8 = (content: string): Omit<CollectedFile, "path"> => {
    return { encoding: "utf8", content, truncated: false };
  };
  expect(Object.keys(files)).toEqual([
    "out/-n",
    "out/a.txt",
    "out/deep/b.bin",
    "out/large",
    "out/new\nline.txt",
  ]);
  expect(files["out/a.txt"]).toEqual(utf8("é"));
  expect(files["out/-n"]).toEqual(utf8("d"));
  expect(files["out/new\nline.txt"]).toEqual(utf8("n"));
  expect(files["out/deep/b.bin"]).toEqual({
    encoding: "base64",
    content: Buffer.of(255, 0).toString("base64"),
    truncated: false,
  });
  expect(files["out/large"]?.truncated).toBe(true);
});

test("a result is bounded whatever commands print and leave", async () => {
  await using there = await ground();
  const { status, result, error } = await run(there, {
    commands: [
      "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2",
      "i=0; while [ $i -lt 110 ]; do echo $i > small$i; i=$((i+1)); done",
      "i=0; while [ $i -lt 8 ]; do head -c 90000 /dev/zero | tr '\\0' '\\001' > big$i; i=$((i+1)); done",
    ],
    collect: ["*"],
  });
  expect([status, error]).toEqual(["succeeded", null]);
  const kept = result.commands.reduce(
    (sum, { stdout, stderr }) => sum + stdout.length + stderr.length,
    0,
  );
  expect(kept).toBe(SHELL_OUTPUT_BYTES_MAX / 3);
  expect(result.files.length).toBeLessThanOrEqual(COLLECT_FILES_MAX);
  expect(JSON.stringify(result.files).length).toBeLessThan(COLLECT_BYTES_MAX + 1024);
  expect(JSON.stringify(result).length).toBeLessThan(TASK_RESULT_BYTES_MAX);
}, 60_000);

test("what is wrong with the input is named", () => {
  const commands = ["true"];
  for (const [field, input] of [
    ["input", null],
    ["input.commands", {}],
    ["input.commands", { commands: [] }],
    ["input.commands", { commands: Array.from({ length: SHELL_COMMANDS_MAX + 1 }, () => "x") }],
    ["input.commands.0", { commands: [""] }],
    ["input.commands[0][1]", { commands: [["a", "b\0"]] }],
    ["input.collect.0", { commands, collect: ["/etc/*"] }],
    ["input.collect.0", { commands, collect: ["a/../../b"] }],
    [
      "input.collect",
      { commands, collect: Array.from({ length: SHELL_PATTERNS_MAX + 1 }, () => "x") },
    ],
    ["input.timeout_seconds", { commands, timeout_seconds: 0 }],
    ["input.timeout_seconds", { commands, timeout_seconds: SHELL_TIMEOUT_SECONDS_MAX + 1 }],
    ["input", { commands, other: 1 }],
  ] as const) {
    expect(() => shellInput(input as unknown as Json)).toThrow(
      expect.objectContaining({ code: "invalid_argument", field }),
    );
  }
});
