import { expect, test } from "bun:test";
import { systemClock } from "../../../src/core/clock.ts";
import type { JobSpec } from "../../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import { silentLog } from "../../../src/core/log.ts";
import { runJob } from "../../../src/jobs/run.ts";
import { StopSwitch } from "../../../src/jobs/stop-switch.ts";
import type { ExecSpec } from "../../../src/provider/contract.ts";
import { sandboxGone } from "../../../src/sandbox/init-channel.ts";
import type { TimedDraft } from "../../../src/store/contract.ts";
import { FakeProvider, fakeLanguages } from "../../jobs/fake-provider.ts";

const SPEC: JobSpec = {
  language: "javascript",
  code: "1",
  args: [],
  stdinBase64: null,
  files: [],
  env: { BUN_BE_BUN: "", OWN: "1" },
  limits: DEFAULT_LIMITS,
  labels: {},
  placement: null,
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

/** Runs a job in leases that waited, and fail as they are told. */
async function runWaited(waited: FakeProvider["options"]["waited"], spec = {}) {
  const recorded: TimedDraft[] = [];
  const provider = new FakeProvider({ capacity: 1, ...(waited === undefined ? {} : { waited }) });
  const stop = new StopSwitch();
  const outcome = await runJob({
    spec: { ...SPEC, language: "python", ...spec },
    provider,
    reservation: await provider.reserve(SPEC.limits),
    languages: fakeLanguages,
    append: async (drafts) => recorded.push(...drafts),
    stop,
    clock: systemClock,
    log: silentLog,
  });
  expect([provider.reserved, provider.open_]).toEqual([0, 0]);
  const kinds = recorded.map(({ draft }) => draft.kind);
  return { outcome, kinds, opens: provider.opens.map(({ isNew }) => isNew) };
}

const ARGV = { language: "argv", code: null, args: ["/bin/true"] };

test("a sandbox that died while it waited is followed by a new one, in a place of its own", async () => {
  const { outcome, kinds, opens } = await runWaited([{ putError: sandboxGone() }]);
  expect(outcome).toMatchObject({ reason: "exit", exitCode: 0 });
  // The program ran once, and the log says nothing of the first.
  expect(kinds).toEqual(["started", "stdout"]);
  expect(opens).toEqual([false, true]);
});

test("as does one that was gone before it was asked to run the program", async () => {
  const execError = sandboxGone({ isUnasked: true });
  const { outcome, opens } = await runWaited([{ execError }], ARGV);
  expect(outcome).toMatchObject({ reason: "exit", exitCode: 0 });
  expect(opens).toEqual([false, true]);
});

test("there is no third", async () => {
  const gone = { putError: sandboxGone() };
  const { outcome, kinds, opens } = await runWaited([gone, gone, gone]);
  expect(outcome.reason).toBe("setup_failed");
  expect(kinds).toEqual([]);
  expect(opens).toEqual([false, true]);
});

test.each([
  ["may have run the program", { execError: sandboxGone() }],
  ["lives, and refuses", { putError: new Error("disk full") }],
])("no second where the first %s", async (_, failure) => {
  const { outcome, opens } = await runWaited([failure]);
  expect(outcome.reason).toBe("setup_failed");
  expect(opens).toEqual([false]);
});

test("no second where the first was new", async () => {
  const provider = new FakeProvider({ execError: sandboxGone({ isUnasked: true }) });
  const outcome = await runJob({
    spec: { ...SPEC, ...ARGV },
    provider,
    reservation: await provider.reserve(SPEC.limits),
    languages: fakeLanguages,
    append: () => Promise.resolve(),
    stop: new StopSwitch(),
    clock: systemClock,
    log: silentLog,
  });
  expect(outcome.reason).toBe("setup_failed");
  expect(provider.opens).toHaveLength(1);
});
