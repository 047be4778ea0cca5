import { expect } from "bun:test";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { built, removeTemporaryDirectories, temporaryDirectory } from "./native.ts";

const repository = join(import.meta.dir, "../..");
const suites = ["launch", "exec", "requests", "archive", "archive-hostile", "filter"].map(
  (name) => `./test/ffi/${name}.test.ts`,
);

function run(command: string[], env: Record<string, string | undefined> = process.env): void {
  const ran = Bun.spawnSync(command, { cwd: repository, env, stdout: "pipe", stderr: "pipe" });
  expect(ran.exitCode, `${ran.stdout}${ran.stderr}`).toBe(0);
}

requireHost({ root: true, userns: true, programs: ["gcc"] }).describe("the same tests pass", () => {
  const test = (title: string, make: string[], files: string[]): void => {
    requireHost({ root: true, userns: true }).test(
      title,
      () => {
        expect(built.library).not.toBe("");
        const out = temporaryDirectory();
        run(["make", "-C", "ffi", `OUT=${out}`, "CC=gcc", ...make]);
        run([process.execPath, "test", "--timeout=60000", ...files], {
          ...process.env,
          CPRG_FFI_BUILD: out,
        });
        removeTemporaryDirectories();
      },
      300_000,
    );
  };

  test("with cprg-init under AddressSanitizer and UBSan", ["sanitize"], suites);
  test(
    "with both files trapping on undefined behaviour",
    ["EXTRA=-fsanitize=undefined -fsanitize-undefined-trap-on-error"],
    [...suites, "./test/ffi/shim.test.ts"],
  );
});
