// The curl lines of README.md, as a reader pastes them, against a server of the compiled binary.

import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { makeHome } from "./cprg.ts";
import { serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true, programs: ["curl"] });

const readme = readFileSync(join(import.meta.dir, "../../README.md"), "utf8");

/** Commands of the block with curl in it, one each, continuation lines joined. */
function curlCommands(): string[] {
  const blocks = [...readme.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, text]) => text ?? "");
  const lines = blocks.flatMap((text) => text.replaceAll("\\\n", " ").split("\n"));
  return lines.filter((line) => line.startsWith("curl "));
}

test("the curl lines of the README submit a job and read its result", async () => {
  const [submit = "", result = "", ...others] = curlCommands();
  expect(others).toEqual([]);
  using home = makeHome();
  await using server = await serve(home);
  const run = async (line: string): Promise<Record<string, unknown>> => {
    const here = line.replaceAll("localhost:7300", server.url.replace("http://", ""));
    expect(here).not.toBe(line);
    const env = { PATH: home.env["PATH"] ?? "", KEY: server.key };
    const shell = Bun.spawn(["/bin/bash", "-c", here], { env, stdout: "pipe", stderr: "pipe" });
    const [out, err] = await Promise.all([shell.stdout.text(), shell.stderr.text()]);
    expect({ err, code: await shell.exited }).toEqual({ err: "", code: 0 });
    return JSON.parse(out) as Record<string, unknown>;
  };
  const job = await run(submit);
  expect(job).toMatchObject({ language: "python", limits: { wall_seconds: 10 } });
  const answer = await run(result.replaceAll("JOB_ID", String(job["job_id"])));
  expect(answer).toMatchObject({ status: "succeeded", stdout: "42\n" });
});
