// Where requests of a fuzz go, such that there is something: objects of an API, made over it.

import { expect } from "bun:test";
import type { Answer, Ask } from "../fixture.ts";
import type { Operation } from "./requests.ts";

/** What of a server differs from one to another. */
export interface Fuzzed {
  ask(path: string, how?: Ask): Promise<Answer>;
  /** A key for what only administrators may. */
  readonly adminKey: string;
  /** A job that leaves the file `a.txt` and ends, and one that does not end. */
  readonly quickJob: Readonly<Record<string, unknown>>;
  readonly endlessJob: Readonly<Record<string, unknown>>;
  /** An exec that ends, and one that takes input, a size and signals, and stays until it is ended. */
  readonly quickExec: Readonly<Record<string, unknown>>;
  readonly endlessExec: Readonly<Record<string, unknown>>;
  /** Whether an exec that was used may have ended of it. */
  readonly isExecMortal: boolean;
  /** The id of a worker that is connected, and does nothing. */
  openWorker(): Promise<string>;
}

/** Longer than any job here waits and runs, on a busy machine. */
const JOB_SECONDS = 300;

/** Whether what was asked for can be had only once of one thing. */
function isSpent({ method, path }: Operation, status: number): boolean {
  if (method !== "DELETE") return path.endsWith("/rotate") || path.endsWith("/drain");
  return status === 200 || path.startsWith("/v1/workers/");
}

/** Makes places, and ends what is in them. */
export class Places {
  readonly #fuzzed: Fuzzed;
  /** Stays open: execs of all routes are in it. */
  readonly #sandbox: string;

  private constructor(fuzzed: Fuzzed, sandbox: string) {
    this.#fuzzed = fuzzed;
    this.#sandbox = sandbox;
  }

  static async open(fuzzed: Fuzzed): Promise<Places> {
    return new Places(fuzzed, await openSandbox(fuzzed));
  }

  /** The path of an operation such that there is something: made for it, where it needs that. */
  async of(operation: Operation): Promise<string> {
    const { path } = operation;
    if (!path.includes("{")) return path;
    const filled = (id: string) => path.replace("{id}", id).replace("{path}", "a.txt");
    if (path.startsWith("/v1/jobs/")) return filled(await this.#job(operation));
    if (path.startsWith("/v1/execs/")) return filled(await this.#exec(operation));
    if (path.startsWith("/v1/keys/")) return filled(await this.#key());
    if (path.startsWith("/v1/tasks/")) return filled(await this.#task(operation));
    if (path.startsWith("/v1/workers/")) return filled(await this.#fuzzed.openWorker());
    if (path.startsWith("/v1/worker-tokens/")) return filled(await this.#token());
    if (!path.startsWith("/v1/sandboxes/")) throw new Error(`nothing makes ${path}`);
    return filled((await openSandbox(this.#fuzzed)).split("/").at(-1) ?? "");
  }

  /** Where the next request goes: elsewhere, when the last one used up what was there. */
  async next(asked: {
    readonly operation: Operation;
    readonly place: string;
    readonly answer: Answer;
  }): Promise<string> {
    const { operation, place, answer } = asked;
    const { status } = answer;
    if (operation.method === "POST" && operation.path === "/v1/sandboxes" && status === 201) {
      await this.#useUp(answer.headers.get("location") ?? "");
    }
    if (operation.method === "POST" && /^\/v1\/jobs(?:\/batch)?$/.test(operation.path)) {
      await this.#outlast(answer.text);
    }
    if (status >= 300 && status !== 409) return place;
    if (!isSpent(operation, status)) return await this.#alive(operation, place);
    if (operation.method === "DELETE") await this.#deleteAgain(place);
    return await this.of(operation);
  }

  /** Ends the sandbox that a place was in, and an exec: a tenant may have few. */
  async leave(place: string): Promise<void> {
    const [gone] = /^\/v1\/(?:sandboxes|execs)\/[^/]+/.exec(place) ?? [];
    if (gone !== undefined) await this.#fuzzed.ask(gone, { method: "DELETE" });
  }

  /** A job that has ended, for what looks; one that runs, for what ends it. */
  async #job({ method }: Operation): Promise<string> {
    const { ask, quickJob, endlessJob } = this.#fuzzed;
    const { json, text } = await ask("/v1/jobs", {
      body: method === "DELETE" ? endlessJob : quickJob,
    });
    if (method !== "DELETE") await this.#outlast(text);
    return json.job_id;
  }

  /** An exec that has ended, for what looks; one that runs, for what uses it. */
  async #exec({ method }: Operation): Promise<string> {
    const { ask, quickExec, endlessExec } = this.#fuzzed;
    const isUsed = method !== "GET";
    const path = `${this.#sandbox}/execs?wait_seconds=${isUsed ? 0 : 60}`;
    const { json, text } = await ask(path, { body: isUsed ? endlessExec : quickExec });
    if (json.exec_id === undefined) throw new Error(`no exec: ${text}`);
    return json.exec_id;
  }

  /** A task that waits, for what ends it; one that was cancelled, for what looks. */
  async #task({ method }: Operation): Promise<string> {
    const { ask } = this.#fuzzed;
    const input = { commands: ["true"] };
    const { json } = await ask("/v1/tasks", { body: { input, labels: { none: "such" } } });
    if (method !== "DELETE") await ask(`/v1/tasks/${json.task_id}`, { method: "DELETE" });
    return json.task_id;
  }

  /** A token that nobody uses. */
  async #token(): Promise<string> {
    const { ask, adminKey: key } = this.#fuzzed;
    const minted = await ask("/v1/worker-tokens", { body: { expires_in_seconds: 60 }, key });
    expect(minted.status).toBe(201);
    return minted.json.token_id;
  }

  /** A key that nobody uses. */
  async #key(): Promise<string> {
    const { ask, adminKey: key } = this.#fuzzed;
    const made = await ask("/v1/keys", { body: {}, key });
    expect(made.status).toBe(201);
    return made.json.key_id;
  }

  /** The same place, unless what is used there has ended of it. */
  async #alive(operation: Operation, place: string): Promise<string> {
    const { ask, isExecMortal } = this.#fuzzed;
    const isUse = operation.method === "POST" && operation.path.startsWith("/v1/execs/");
    if (!isExecMortal || !isUse) return place;
    const { json } = await ask(place.split("/").slice(0, 4).join("/"));
    return json.status === "running" ? place : await this.of(operation);
  }

  /** Waits for the jobs of an answer: what makes places waits behind them else. */
  async #outlast(text: string): Promise<void> {
    for (const [, id] of text.matchAll(/"job_id":"([^"]+)"/g)) {
      const ended = await this.#fuzzed.ask(`/v1/jobs/${id}/result?wait_seconds=${JOB_SECONDS}`);
      expect([id, ended.status]).toEqual([id, 200]);
    }
  }

  /** Runs something in a sandbox, and ends it; one with little time may have ended by itself. */
  async #useUp(sandbox: string): Promise<void> {
    const { ask, quickExec } = this.#fuzzed;
    const ran = await ask(`${sandbox}/execs`, { body: quickExec });
    expect([200, 409]).toContain(ran.status);
    const ended = await ask(sandbox, { method: "DELETE" });
    expect([200, 409]).toContain(ended.status);
    const after = await ask(`${sandbox}/execs`, { body: quickExec });
    expect(after.status).toBe(409);
  }

  /** What has ended cannot be ended; a key stays revoked, however often that is asked for. */
  async #deleteAgain(place: string): Promise<void> {
    // A worker that was removed dials again, and may be back by now.
    if (place.startsWith("/v1/workers/")) return;
    const isRevoked = /^\/v1\/(?:keys|worker-tokens)\//.test(place);
    const { ask, adminKey } = this.#fuzzed;
    const { status } = await ask(place, {
      method: "DELETE",
      ...(isRevoked ? { key: adminKey } : {}),
    });
    expect([place, status]).toEqual([place, isRevoked ? 200 : 409]);
  }
}

/** The path of a sandbox with a file in it, which stays open. */
export async function openSandbox({ ask }: Pick<Fuzzed, "ask">): Promise<string> {
  const body = { idle_seconds: 86_400, lifetime_seconds: 86_400 };
  const opened = await ask("/v1/sandboxes", { body });
  expect([opened.status, opened.text]).toEqual([201, opened.text]);
  const path = `/v1/sandboxes/${opened.json.sandbox_id}`;
  const headers = { "Content-Length": "1" };
  const put = await ask(`${path}/files/a.txt`, { method: "PUT", body: "1", headers });
  expect([put.status, put.text]).toEqual([204, ""]);
  return path;
}
