// A run in this process over a fake provider: what is recorded, shown, stopped, handed out.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { collectArtifacts } from "../../../src/cli/run-artifacts.ts";
import { runLocally } from "../../../src/cli/run-local.ts";
import { RunOutput } from "../../../src/cli/run-output.ts";
import { runExitCode } from "../../../src/cli/run-report.ts";
import { takeSignals } from "../../../src/cli/run-stop.ts";
import { ClosedOutput } from "../../../src/cli/terminal.ts";
import type { EventDraft } from "../../../src/core/event.ts";
import { silentLog } from "../../../src/core/log.ts";
import { StopSwitch } from "../../../src/jobs/stop-switch.ts";
import type { Artifact, ExecLease, ExecProvider } from "../../../src/provider/contract.ts";
import { memoryStore } from "../../../src/store/memory-store.ts";
import { type FakeOptions, FakeProvider, fakeLanguages } from "../../jobs/fake-provider.ts";
import { pythonSpec } from "../../jobs/fixture.ts";
import { memoryTerminal } from "./memory-terminal.ts";

function prepare(fake: FakeOptions, stop = new StopSwitch()) {
  const shown: EventDraft[] = [];
  const provider = new FakeProvider(fake);
  const store = memoryStore();
  const run = {
    spec: pythonSpec("print(1)"),
    provider,
    languages: fakeLanguages,
    store,
    stop,
    log: silentLog,
    show: async (draft: EventDraft) => {
      shown.push(draft);
    },
  };
  return { run, shown, provider, store };
}

describe("runLocally()", () => {
  test("runs a job and shows its events in order, before it resolves", async () => {
    const { run, shown, provider, store } = prepare({});
    const job = await runLocally(run);
    expect(job).toMatchObject({ status: "succeeded", outcome: { exitCode: 0 } });
    expect(shown.map(({ kind }) => kind)).toEqual(["started", "stdout"]);
    expect(await store.events.head(`job:${job.id}`)).toMatchObject({ complete: true, count: 4 });
    expect([provider.reserved, provider.open_]).toEqual([0, 0]);
  });

  test("ends as cancelled when it is stopped: while it runs, and before", async () => {
    const stop = new StopSwitch();
    const running = prepare(
      {
        run: async ({ out, killed }) => {
          await out("ready");
          stop.stop({ reason: "user", graceMs: 7 });
          await killed;
          return { reason: "user", exitCode: null, signal: "SIGTERM" };
        },
      },
      stop,
    );
    expect((await runLocally(running.run)).status).toBe("cancelled");
    expect(running.provider.kills).toEqual([{ reason: "user", graceMs: 7 }]);

    const before = prepare({ capacity: 0 }, stop);
    expect((await runLocally(before.run)).status).toBe("cancelled");
    expect(before.provider.open_).toBe(0);
  });

  test("throws what makes a run impossible on this host", async () => {
    const { run } = prepare({ reserveError: new Error("never") });
    await expect(runLocally(run)).rejects.toThrow("never");
  });

  test("is held back by a reader that does not read", async () => {
    const reader = Promise.withResolvers<void>();
    let isDone = false;
    const { run } = prepare({});
    const job = runLocally({ ...run, show: async () => await reader.promise }).then((ended) => {
      isDone = true;
      return ended;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isDone).toBe(false);
    reader.resolve();
    expect((await job).status).toBe("succeeded");
  });
});

describe("RunOutput", () => {
  const bytes = Buffer.from("x");

  test("ends the run once when standard output is closed, and writes no more", async () => {
    const terminal = memoryTerminal();
    let closed = 0;
    let writes = 0;
    const write = async () => {
      writes += 1;
      throw new ClosedOutput();
    };
    const output = new RunOutput({ ...terminal, stdout: { ...terminal.stdout, write } }, () => {
      closed += 1;
    });
    await output.write("stdout", bytes);
    await output.write("stdout", bytes);
    expect([closed, writes, output.isClosed]).toEqual([1, 1, true]);
  });

  test("goes on without a closed standard error", async () => {
    const terminal = memoryTerminal();
    const write = async () => await Promise.reject(new ClosedOutput());
    const output = new RunOutput({ ...terminal, stderr: { ...terminal.stderr, write } }, () => {
      throw new Error("it must not end");
    });
    await output.write("stderr", bytes);
    await output.write("stdout", bytes);
    expect([terminal.out(), output.isClosed]).toEqual(["x", false]);
  });

  test("abandon() lets go of a reader that does not read", async () => {
    const terminal = memoryTerminal();
    const write = () => new Promise<void>(() => undefined);
    const output = new RunOutput({ ...terminal, stdout: { ...terminal.stdout, write } }, () => {});
    const writing = output.write("stdout", bytes);
    output.abandon();
    await writing;
    await output.write("stdout", bytes);
    expect(output.isClosed).toBe(false);
  });
});

test("takeSignals() cancels at the first signal, kills at each further one, and lets go", () => {
  const terminal = memoryTerminal();
  const calls: string[] = [];
  const actions = { cancel: () => calls.push("cancel"), kill: () => calls.push("kill") };
  {
    using signals = takeSignals(terminal, actions);
    expect(signals.first).toBeNull();
    terminal.send("SIGTERM");
    terminal.send("SIGINT");
    terminal.send("SIGTERM");
    expect(signals.first).toBe("SIGTERM");
    const end = { reason: "user", exitCode: null, signal: "SIGTERM", error: null } as const;
    expect(runExitCode(end, { command: "run", limits: {}, stoppedBy: signals.first })).toBe(143);
    const own = { ...end, reason: "exit", exitCode: 3 } as const;
    expect(runExitCode(own, { command: "run", limits: {}, stoppedBy: signals.first })).toBe(3);
  }
  terminal.send("SIGINT");
  expect(calls).toEqual(["cancel", "kill", "kill"]);
});

describe("collectArtifacts()", () => {
  let folder = "";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "cprg-out-"));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  function artifact(path: string, content: string, mode = 0o644): Artifact {
    return {
      path,
      size: content.length,
      mode,
      async *read() {
        yield Buffer.from(content.slice(0, 1));
        yield Buffer.from(content.slice(1));
      },
    };
  }

  async function collect(directory: string, artifacts: readonly Artifact[]) {
    const order: string[] = [];
    const fake = new FakeProvider();
    const provider: ExecProvider = {
      name: "fake",
      reserve: (limits) => fake.reserve(limits),
      open: async (reservation) => {
        const lease = await fake.open(reservation);
        const release = lease.release.bind(lease);
        const wrapped: Partial<ExecLease> = {
          artifacts: async () => {
            order.push("artifacts");
            return artifacts;
          },
          release: async () => {
            order.push("release");
            await release();
          },
        };
        return Object.assign(lease, wrapped);
      },
    };
    const collector = collectArtifacts(provider, directory);
    const { run } = prepare({});
    const job = await runLocally({ ...run, provider: collector.provider });
    return { collector, job, order };
  }

  test("copies files before the sandbox goes, with their modes but no set-user-id bit", async () => {
    const directory = join(folder, "a");
    const { collector, job, order } = await collect(directory, [
      artifact("x", "one"),
      artifact("sub/y", "two", 0o4755),
    ]);
    collector.check();
    expect(job.status).toBe("succeeded");
    expect(order).toEqual(["artifacts", "release"]);
    expect(collector.written).toEqual(["x", "sub/y"]);
    expect(readFileSync(join(directory, "x"), "utf8")).toBe("one");
    expect(readFileSync(join(directory, "sub/y"), "utf8")).toBe("two");
    expect(statSync(join(directory, "sub/y")).mode & 0o7777).toBe(0o755);
  });

  test.each(["../x", "/etc/x", "a/../../x", "a//b", ".", "", "a\0b"])(
    "refuses the path %j, and the run itself does not fail of it",
    async (path) => {
      const { collector, job, order } = await collect(join(folder, "b"), [artifact(path, "x")]);
      expect(job.status).toBe("succeeded");
      expect(order).toEqual(["artifacts", "release"]);
      expect(() => collector.check()).toThrow("no path beneath /workspace/out");
    },
  );

  test("follows no link that stands in the file's place", async () => {
    const directory = join(folder, "c");
    await collect(directory, [artifact("first", "x")]);
    const victim = join(folder, "victim");
    writeFileSync(victim, "untouched");
    symlinkSync(victim, join(directory, "link"));
    const { collector } = await collect(directory, [artifact("link", "overwritten")]);
    expect(() => collector.check()).toThrow();
    expect(readFileSync(victim, "utf8")).toBe("untouched");
  });
});
