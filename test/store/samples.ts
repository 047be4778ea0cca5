// Jobs, drafts and folders for the tests of stores.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CprgError } from "../../src/core/errors.ts";
import type { ExecRecord } from "../../src/core/exec.ts";
import { newId } from "../../src/core/ids.ts";
import type { Job, JobSpec } from "../../src/core/job.ts";
import { DEFAULT_LIMITS } from "../../src/core/limits.ts";
import type { Outcome } from "../../src/core/outcome.ts";
import type { SandboxRecord } from "../../src/core/sandbox.ts";
import type { Task } from "../../src/core/task.ts";
import type { EventLine, EventLog, TimedDraft } from "../../src/store/contract.ts";
import { finishedDraft } from "../../src/store/log-lines.ts";

/** 2026-01-01T00:00:00Z. */
export const NOON = 1_767_225_600_000;

/** A queued job; later ones are newer. */
export function sampleJob(change: Partial<Job> = {}): Job {
  return {
    id: newId(),
    tenant: "acme",
    status: "queued",
    language: "python",
    limits: DEFAULT_LIMITS,
    labels: { team: "blue" },
    placement: null,
    workerId: null,
    createdAt: NOON,
    startedAt: null,
    finishedAt: null,
    owner: null,
    outcome: null,
    ...change,
  };
}

export function sampleSpec(change: Partial<JobSpec> = {}): JobSpec {
  return {
    language: "python",
    code: "print(6*7)",
    args: ["a", "b c"],
    stdinBase64: "aGk=",
    files: [{ path: "in/x.txt", base64: "AAEC", mode: 0o600 }],
    env: { LANG: "C" },
    limits: DEFAULT_LIMITS,
    labels: { team: "blue" },
    placement: null,
    killGraceSeconds: 5,
    ...change,
  };
}

export function sampleOutcome(change: Partial<Outcome> = {}): Outcome {
  return {
    exitCode: 0,
    signal: null,
    reason: "exit",
    limitsHit: [],
    violations: [],
    usage: { cpu_ms: 12, memory_peak_bytes: 4096, pids_peak: null },
    durationMs: 34,
    killed: 0,
    ...change,
  };
}

/** A row of output. */
export function stdout(data: string, at = NOON): TimedDraft {
  return { at, draft: { kind: "stdout", data } };
}

/** The event that ends a log. */
export function finished(change: Partial<Outcome> = {}): TimedDraft {
  return { at: NOON, draft: finishedDraft(sampleOutcome(change)) };
}

/** The error that a promise rejects with; fails when it resolves. */
export async function failure(promise: Promise<unknown>): Promise<CprgError> {
  const error = await promise.then(
    () => new Error("it resolved"),
    (reason: unknown) => reason,
  );
  if (CprgError.is(error)) return error;
  throw error;
}

/** Every line of a log. */
export async function allLines(events: EventLog, subject: Parameters<EventLog["read"]>[0]) {
  const lines: EventLine[] = [];
  for (;;) {
    const page = await events.read(subject, lines.length + 1, { limit: 1000, maxBytes: 1e6 });
    if (page.length === 0) return lines;
    lines.push(...page);
  }
}

/** A folder that is removed with everything in it. */
export class TempDir implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "cprg-store-"));

  join(name: string): string {
    return join(this.path, name);
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A sandbox that is open. */
export function sampleSandbox(change: Partial<SandboxRecord> = {}): SandboxRecord {
  return {
    id: newId(),
    tenant: "acme",
    limits: DEFAULT_LIMITS,
    labels: { team: "blue" },
    placement: null,
    workerId: null,
    idleSeconds: 0.5,
    lifetimeSeconds: 3600,
    createdAt: NOON,
    endedAt: null,
    reason: null,
    instance: "here",
    ...change,
  };
}

/** An exec that runs. */
export function sampleExec(sandboxId: string, change: Partial<ExecRecord> = {}): ExecRecord {
  return {
    id: newId(),
    sandboxId,
    tenant: "acme",
    status: "running",
    argv: ["sh", "-c", "é\n"],
    hasTerminal: true,
    limits: DEFAULT_LIMITS,
    createdAt: NOON,
    finishedAt: null,
    instance: "here",
    outcome: null,
    ...change,
  };
}

/** A task that waits; later ones are newer. */
export function sampleTask(change: Partial<Task> = {}): Task {
  return {
    id: newId(),
    tenant: "acme",
    status: "queued",
    reason: null,
    runner: "shell",
    input: { commands: ["echo é"] },
    labels: { arch: "x86_64" },
    repoUrl: null,
    ref: null,
    attempts: 0,
    epoch: 0,
    workerId: null,
    result: null,
    error: null,
    createdAt: NOON,
    startedAt: null,
    finishedAt: null,
    ...change,
  };
}
