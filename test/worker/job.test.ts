// job.Run on a worker with sandboxes, as the control plane drives it.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { JOB_RUN } from "../../src/bridge/methods.ts";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import { runRemoteJob } from "../../src/control-plane/remote-job.ts";
import type { EventData, EventDraft } from "../../src/core/event.ts";
import type { JobSpec } from "../../src/core/job.ts";
import type { JobRunRequest } from "../../src/gen/messages.ts";
import { type JobRequest, jobSpec } from "../../src/jobs/spec.ts";
import { requireHost } from "../helpers/host.ts";
import { refusal, until } from "./ground.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  TOKEN,
  type WorkerProcess,
} from "./process.ts";

interface RanJob {
  readonly kinds: readonly string[];
  readonly stdout: string;
  readonly drafts: readonly EventDraft[];
  readonly finished: EventData["finished"] | undefined;
}

async function run(link: ClaimLink, job: JobSpec, signal?: AbortSignal): Promise<RanJob> {
  const kinds: string[] = [];
  const drafts: EventDraft[] = [];
  let stdout = "";
  let finished: EventData["finished"] | undefined;
  for await (const { draft } of runRemoteJob(link, job, signal === undefined ? {} : { signal })) {
    kinds.push(draft.kind);
    if ("bytes" in draft) {
      if (draft.kind === "stdout") stdout += Buffer.from(draft.bytes).toString();
    } else {
      drafts.push(draft);
      if (draft.kind === "finished") finished = draft.data;
    }
  }
  return { kinds, stdout, drafts, finished };
}

const python = (code: string, rest: Partial<JobRequest> = {}): JobSpec =>
  jobSpec({ language: "python", code, ...rest });

/** Processes of the host that have a word in their arguments. */
function withWord(word: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(word);
    } catch {
      return false;
    }
  });
}

const sleeping = (word: string): JobSpec =>
  jobSpec({ argv: ["sh", "-c", `echo up; sleep 600; : ${word}`] });

requireHost({ sandbox: true, root: true }).describe("a worker with sandboxes", () => {
  let plane: Plane;
  let worker: WorkerProcess;
  let claimed: ClaimLink;

  beforeAll(async () => {
    plane = await startPlane();
    worker = startWorkerProcess(plane.port, {
      isIsolated: true,
      words: ["--token", TOKEN, "--slots", "2"],
    });
    claimed = await plane.registry.claim({ taskId: "t1", epoch: 1, env: { OF_CLAIM: "secret" } });
  });

  afterAll(async () => {
    worker.kill("SIGTERM");
    await claimed.release();
    expect(await worker.exited).toBe(0);
    await worker.end();
    await plane.close();
  });

  const refused = (request: Partial<JobRunRequest>): Promise<string> =>
    refusal(
      (async () => {
        for await (const _ of claimed.mux.stream(JOB_RUN, { claim: claimed.claim, ...request }));
      })(),
    );

  test("it lists the method", () => {
    expect(claimed.mux.peer.has(JOB_RUN.name)).toBe(true);
  });

  test("code runs with files, input, arguments and an environment of its own", async () => {
    const code = `import os, sys
print(sys.argv[1], sys.stdin.read(), open("in/f").read(), sorted(os.environ))
print("to stderr", file=sys.stderr)
sys.exit(3)`;
    const ran = await run(
      claimed,
      python(code, {
        args: ["an argument"],
        stdin: "an input",
        files: [{ path: "in/f", text: "a file", mode: 0o600 }],
        env: { OWN: "x" },
      }),
    );
    expect(ran.stdout).toStartWith("an argument an input a file ");
    expect(ran.stdout).toContain("'OWN'");
    expect(ran.stdout).not.toContain("OF_CLAIM");
    expect(ran.kinds[0]).toBe("started");
    expect(ran.kinds).toContain("stderr");
    expect(ran.kinds.at(-1)).toBe("finished");
    expect(ran.finished).toMatchObject({ status: "failed", exit_code: 3, reason: "exit" });
  });

  test("limits are in force, and what they do is among the events", async () => {
    const slow = await run(claimed, python("while True: pass", { limits: { wall_seconds: 0.5 } }));
    expect(slow.finished).toMatchObject({ status: "timed_out", reason: "wall_limit" });
    const loud = await run(claimed, python("print('x' * 5000)", { limits: { output_kb: 1 } }));
    expect(loud.stdout).toBe("x".repeat(1024));
    expect(loud.kinds).toContain("truncated");
    const started = slow.drafts.find((draft) => draft.kind === "started");
    expect(started?.kind === "started" && started.data.limits.wall_seconds).toBe(0.5);
  });

  test("limits above the ceilings are clamped by the worker", async () => {
    const spec = jobSpec({ argv: ["true"] });
    const ran = await run(claimed, { ...spec, limits: { ...spec.limits, pids: 1_000_000 } });
    const started = ran.drafts.find((draft) => draft.kind === "started");
    expect(started?.kind === "started" && started.data.limits.pids).toBe(1024);
  });

  test("what makes no sense is refused before anything runs", async () => {
    expect(await refused({ language: "klingon", code: Buffer.from("x") })).toStartWith("invalid_a");
    expect(await refused({ language: "python", code: Buffer.of(0xff) })).toBe("invalid_argument");
    expect(await refused({})).toBe("invalid_argument");
    const args = ["true"];
    expect(await refused({ args, limits: { none: 1 } })).toBe("invalid_argument");
    expect(await refused({ args, limits: { pids: Number.NaN } })).toBe("invalid_argument");
    const files = [{ path: "../out", content: new Uint8Array() }];
    expect(await refused({ args, files })).toBe("invalid_argument");
  });

  test("cancelled, it is gone when that is answered", async () => {
    const word = `job-${crypto.randomUUID()}`;
    const abort = new AbortController();
    const ran = refusal(run(claimed, sleeping(word), abort.signal));
    await until(() => withWord(word).length > 0);
    abort.abort();
    expect(await ran).toBe("canceled");
    expect(withWord(word)).toEqual([]);
  });

  test("it ends with its claim", async () => {
    const word = `job-${crypto.randomUUID()}`;
    const other = await plane.registry.claim({ taskId: "t2", epoch: 1 });
    const ran = refusal(run(other, sleeping(word)));
    await until(() => withWord(word).length > 0);
    await other.release();
    expect(await ran).toBe("failed_precondition NOT_CLAIMED");
    expect(withWord(word)).toEqual([]);
  });
});

test("a worker without a sandbox neither lists nor serves it", async () => {
  const plane = await startPlane();
  const worker = startWorkerProcess(plane.port);
  try {
    const claimed = await plane.registry.claim({ taskId: "t1", epoch: 1 });
    expect(claimed.mux.peer.has(JOB_RUN.name)).toBe(false);
    expect(await refusal(run(claimed, jobSpec({ argv: ["true"] })))).toBe("unimplemented");
    await claimed.release();
  } finally {
    await worker.end();
    await plane.close();
  }
});
