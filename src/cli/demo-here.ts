/** `cprg demo`: starts a control plane and a worker, lets an agent do one task, and takes all away. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ControlPlane } from "../control-plane/control-plane.ts";
import { agentRunner } from "../control-plane/runners/agent.ts";
import { CprgError } from "../core/errors.ts";
import { hasTaskEnded } from "../core/task.ts";
import { DEMO_PROMPT, scriptedModel } from "./demo-script.ts";
import { EXIT } from "./exit-code.ts";
import { usageError } from "./flags.ts";
import { formatDuration, paintFor, printable } from "./output.ts";
import { takeSignals } from "./run-stop.ts";
import type { Terminal } from "./terminal.ts";

const ISOLATIONS: readonly string[] = ["auto", "ns", "rootless", "off"];
/** A worker that has not connected by then will not. */
const CONNECT_MS = 30_000;
const TOKEN_SECONDS = 3600;
/** How much is shown of what a worker says when it cannot start. */
const SAID_CHARS_MAX = 2000;

/** What was asked for. */
export interface DemoFlags {
  readonly model: string | undefined;
  readonly "base-url": string | undefined;
  readonly isolate: string | undefined;
  readonly prompt: string | undefined;
}

/** Shows it; 0 when the task succeeded. */
export async function demoHere(flags: DemoFlags, terminal: Terminal): Promise<number> {
  const isolate = flags.isolate ?? (flags.model === undefined ? "off" : "auto");
  if (!ISOLATIONS.includes(isolate)) {
    throw usageError(`Cannot use --isolate "${isolate}": expected ${ISOLATIONS.join(", ")}`);
  }
  const startedMs = performance.now();
  const runner = demoRunner(flags, terminal);
  await using stack = new AsyncDisposableStack();
  const stop = new AbortController();
  const cancel = (): void => stop.abort(new CprgError("canceled", "The demo was stopped"));
  using _signals = takeSignals(terminal, { cancel, kill: cancel });
  const directory = mkdtempSync(join(tmpdir(), "cprg-demo-"));
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const plane = new ControlPlane();
  stack.defer(async () => await plane.stop({ graceMs: 0 }));
  plane.setRunner("agent", runner);
  const paint = paintFor(terminal.stdout, terminal.env);
  const say = (name: string, text: string): Promise<void> =>
    terminal.stdout.write(`${paint("dim", name.padEnd(8))} ${printable(text)}\n`);

  const { host, port } = await plane.serve({ port: 0 });
  await say("plane", `listens for workers on ${host}:${port}`);
  const { token } = await plane.mintWorkerToken({ expiresInSeconds: TOKEN_SECONDS, name: "demo" });
  const worker = startWorker({ directory, isolate, port, token, env: terminal.env });
  stack.defer(async () => await worker.end());
  const prompt = flags.prompt ?? DEMO_PROMPT;
  const task = await plane.submit(prompt, { runner: "agent" });
  await say("task", prompt);
  if (task.waiting !== undefined) await say("waits", task.waiting.detail);

  const ended = Promise.withResolvers<never>();
  ended.promise.catch(() => undefined);
  stop.signal.addEventListener("abort", () => ended.reject(stop.signal.reason));
  void worker.failed.then((error) => ended.reject(error));
  await Promise.race([show(plane, task.id, say), ended.promise]);
  const done = await plane.task(task.id);
  if (!hasTaskEnded(done)) throw new CprgError("internal", "The demo's task has no end");
  const { text = "" } = (done.result ?? {}) as { text?: string };
  if (text !== "") await say("result", text);
  await say("end", `${done.status} after ${formatDuration(performance.now() - startedMs)}`);
  if (done.status === "succeeded") return EXIT.ok;
  await terminal.stderr.write(`cprg demo: ${printable(done.error ?? done.reason ?? "")}\n`);
  return EXIT.failed;
}

function demoRunner(flags: DemoFlags, { env }: Terminal) {
  const { model, "base-url": baseUrl } = flags;
  if (model === undefined) return agentRunner(scriptedModel());
  const apiKey = env["CPRG_AGENT_KEY"];
  return agentRunner(model, {
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(apiKey === undefined ? {} : { apiKey }),
  });
}

interface DemoWorker {
  /** Resolves when it ended without having worked. */
  readonly failed: Promise<CprgError>;
  end(): Promise<void>;
}

interface WorkerStart {
  readonly directory: string;
  readonly isolate: string;
  readonly port: number;
  readonly token: string;
  readonly env: Terminal["env"];
}

/** This very program as a worker for one claim; the token reaches it over standard input. */
function startWorker({ directory, isolate, port, token, env }: WorkerStart): DemoWorker {
  const own = Bun.isStandaloneExecutable ? [] : [Bun.main];
  const place = isolate === "off" ? ["--root", join(directory, "work")] : [];
  const child = Bun.spawn(
    [
      process.execPath,
      ...own,
      "worker",
      ...["--connect", `127.0.0.1:${port}`, "--token", "-", "--once", "--name", "demo"],
      ...["--state-dir", join(directory, "state"), "--isolate", isolate, ...place],
    ],
    {
      // Its own settings alone: neither the model's key nor a token of another worker reaches it.
      env: withoutSecrets(env),
      stdin: Buffer.from(token),
      stdout: "ignore",
      stderr: "pipe",
    },
  );
  const said = new Response(child.stderr).text();
  const failed = child.exited.then(async (code) => {
    if (code === 0) return await new Promise<never>(() => undefined);
    const text = printable((await said).trim().slice(-SAID_CHARS_MAX));
    return new CprgError("failed_precondition", `The demo's worker ended with ${code}: ${text}`, {
      hint: "cprg doctor says what sandboxes need; --isolate off does without them",
    });
  });
  return {
    failed,
    end: async () => {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), CONNECT_MS);
      await child.exited;
      clearTimeout(timer);
    },
  };
}

function withoutSecrets(env: Terminal["env"]): Record<string, string> {
  const names = ["PATH", "HOME", "TMPDIR", "LANG", "CPRG_DATA_DIR", "CPRG_RUN_DIR", "CPRG_LOG"];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Prints the task's log as it comes, to its end. */
async function show(
  plane: ControlPlane,
  id: string,
  say: (name: string, text: string) => Promise<void>,
): Promise<void> {
  for await (const { line } of plane.events(id)) {
    const { kind, data } = JSON.parse(line) as { kind: string; data: unknown };
    if (kind === "stdout") await say("agent", String(data).trimEnd());
    if (kind !== "task") continue;
    const { status, worker_id: worker } = data as { status: string; worker_id: string | null };
    await say("task", worker === null ? status : `${status} on ${worker}`);
  }
}
