// `cprg serve` as a child process on a free port.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Home, type Running, readText, start, type TextReader } from "./cprg.ts";

/** A server that listens. */
export interface Serving extends AsyncDisposable {
  readonly url: string;
  /** Where it listens for workers: HOST:PORT; empty where it does not. */
  readonly bridge: string;
  readonly key: string;
  readonly process: Running;
  readonly out: TextReader;
  readonly err: TextReader;
  /** A request with the key. */
  request(path: string, init?: RequestInit): Promise<Response>;
  /** Submits a job and returns its id. */
  submit(body: Readonly<Record<string, unknown>>): Promise<string>;
  /** Ends it with a signal and returns the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number>;
}

/** A shell that ignores signals and becomes the command that follows. */
function ignoring(signals: string): string[] {
  return ["/bin/bash", "-c", `trap "" ${signals}; exec "$0" "$@"`];
}

/** A shell that opens a file as standard error and becomes the command that follows. */
function redirected(path: string): string[] {
  return ["/bin/bash", "-c", `exec "$0" "$@" 2>'${path}'`];
}

/** Starts a server and waits until it listens. */
export async function serve(
  home: Home,
  options: {
    readonly words?: readonly string[];
    /** Default: serve. */
    readonly command?: "serve" | "control-plane";
    readonly env?: Record<string, string>;
    /** Signals that it is started with ignored, as nohup(1) does: `HUP INT`. */
    readonly ignore?: string;
    /** A command that becomes the binary and its words. */
    readonly shell?: readonly string[];
    /** File that its standard error goes to instead of `err`. */
    readonly stderrPath?: string;
  } = {},
): Promise<Serving> {
  const { command = "serve" } = options;
  const words = [command, "--addr", "127.0.0.1:0", ...(options.words ?? [])];
  const shell = [
    ...(options.shell ?? []),
    ...(options.ignore === undefined ? [] : ignoring(options.ignore)),
    ...(options.stderrPath === undefined ? [] : redirected(options.stderrPath)),
  ];
  const child = start(words, {
    env: { ...home.env, CPRG_RATE_PER_MIN: "100000", ...options.env },
    shell,
  });
  const out = readText(child.stdout);
  const err = readText(child.stderr);
  const last = command === "serve" ? "missing" : "agent";
  const listening = out.until(new RegExp(`listening on (\\S+)[\\s\\S]*${last} .*\\n`));
  const text = await listening.catch(async () => {
    throw new Error(`cprg ${command} did not start: ${await err.rest()}`);
  });
  const url = /listening on (\S+)/.exec(text)?.[1] ?? "";
  const bridge = /^bridge +(\S+)/m.exec(text)?.[1] ?? "";
  const key = options.env?.["CPRG_API_KEYS"] ?? readFileSync(join(home.dataDir, "api-key"), "utf8");
  const request = (path: string, init: RequestInit = {}) =>
    fetch(`${url}${path}`, {
      ...init,
      headers: { Authorization: `Bearer ${key.trim()}`, "Content-Type": "application/json" },
    });
  const stop = async (signal: NodeJS.Signals = "SIGTERM"): Promise<number> => {
    child.kill(signal);
    return await child.exited;
  };
  return {
    url,
    bridge,
    key: key.trim(),
    process: child,
    out,
    err,
    request,
    async submit(body) {
      const response = await request("/v1/jobs", { method: "POST", body: JSON.stringify(body) });
      const job = (await response.json()) as { job_id?: string };
      if (response.status !== 201 || job.job_id === undefined) {
        throw new Error(`not submitted: ${response.status} ${JSON.stringify(job)}`);
      }
      return job.job_id;
    },
    stop,
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode === null && child.signalCode === null) await stop();
    },
  };
}
