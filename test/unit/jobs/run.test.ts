import { expect, test } from "bun:test";
import { systemClock } from "../../../src/core/clock.ts";
import type { JobSpec } from "../../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { silentLog } from "../../../src/core/log.ts";
import { runJob } from "../../../src/jobs/run.ts";
import { StopSwitch } from "../../../src/jobs/stop-switch.ts";
import type { ExecSpec } from "../../../src/provider/contract.ts";
import { FakeProvider } from "../../jobs/fake-provider.ts";

const SPEC: JobSpec = {
  language: "javascript",
  code: "1",
  args: [],
  stdinBase64: null,
  files: [],
  env: { BUN_BE_BUN: "", OWN: "1" },
  limits: DEFAULT_LIMITS,
  labels: {},
  killGraceSeconds: 0,
};

test("a job's variables do not turn its interpreter into another program", async () => {
  const seen: ExecSpec[] = [];
  const provider = new FakeProvider({
    run: async ({ spec }) => {
      seen.push(spec);
      return 0;
    },
  });
  const javascript = {
    name: "javascript",
    version: "1",
    executable: "/usr/bin/cprg",
    fileName: "main.js",
    variables: { BUN_BE_BUN: "1" },
    command: () => ["main.js"],
  };
  const outcome = await runJob({
    spec: SPEC,
    provider,
    reservation: await provider.reserve(SPEC.limits),
    languages: { resolve: () => javascript, list: () => [javascript] },
    append: () => Promise.resolve(),
    stop: new StopSwitch(),
    clock: systemClock,
    log: silentLog,
  });
  expect(outcome.reason).toBe("exit");
  expect(seen.map(({ variables }) => variables)).toMatchObject([{ BUN_BE_BUN: "1", OWN: "1" }]);
});
