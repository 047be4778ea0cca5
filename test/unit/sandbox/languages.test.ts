import { expect, test } from "bun:test";
import { CprgError, type ErrorCode } from "../../../src/core/errors.ts";
import type { CommandResult, SandboxLease } from "../../../src/provider/contract.ts";
import { LocalLanguages } from "../../../src/sandbox/languages.ts";
import { stepError } from "../../../src/sandbox/steps.ts";

const EXECVE = 72;
const FORK = 64;
const PYTHON: CommandResult = { status: 0, stdout: "Python 3.13.1\n", stderr: "" };

/** Languages whose interpreter answers `--version` so, one answer for each search. */
function languagesThat(answers: readonly (CommandResult | Error)[]) {
  let searches = 0;
  const lease = {
    invoke: () => {
      const answer = answers[searches - 1] ?? new Error("one search too many");
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    },
    release: () => Promise.resolve(),
  } as unknown as SandboxLease;
  const languages = new LocalLanguages({
    interpreters: { python: "/opt/python3" },
    runtime: null,
    codeDirectory: "",
    openSandbox: () => {
      searches += 1;
      return Promise.resolve(lease);
    },
  });
  const resolve = () =>
    languages.resolve("python").then(
      ({ version }) => version,
      (error: unknown) => (error as CprgError).reason ?? (error as CprgError).code,
    );
  return { resolve, searches: () => searches };
}

const starting = (step: number, errno: number, code: ErrorCode = "failed_precondition") =>
  stepError({ step, index: 0, errno }, { op: "start python", code });

test("a failure that passes is thrown, and the next search finds the language", async () => {
  const passing = [
    new CprgError("deadline_exceeded", "late"),
    new CprgError("unavailable", "the sandbox is gone"),
    starting(FORK, 11),
    starting(EXECVE, 12),
  ];
  for (const failure of passing) {
    const { resolve } = languagesThat([failure, PYTHON]);
    expect(await resolve()).not.toBe("NO_INTERPRETER");
    expect(await resolve()).toBe("3.13.1");
  }
});

test("what is no interpreter is looked for once", async () => {
  const lasting = [
    starting(EXECVE, 2, "not_found"),
    starting(EXECVE, 13, "permission_denied"),
    starting(EXECVE, 8),
    new CprgError("not_found", "no such program", { reason: "PROGRAM_NOT_FOUND" }),
    { status: 1, stdout: "", stderr: "" },
    { status: 0, stdout: "something else", stderr: "" },
  ];
  for (const failure of lasting) {
    const { resolve, searches } = languagesThat([failure, PYTHON]);
    expect(await resolve()).toBe("NO_INTERPRETER");
    expect(await resolve()).toBe("NO_INTERPRETER");
    expect(searches()).toBe(1);
  }
});
