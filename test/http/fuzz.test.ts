// Every route of the description, with requests made from it: none fails, every answer is one that
// is described, and most come through. CPRG_FUZZ_REQUESTS sets how many a route gets, CPRG_FUZZ_SEED
// which.

import { afterAll, expect, test } from "bun:test";
import { Feed } from "../../src/record/feed.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { Ground } from "../control-plane/ground.ts";
import { echoRunner, KEY_A, python, useApp } from "./fixture.ts";
import { AnswerCheck } from "./fuzz/answers.ts";
import { Random } from "./fuzz/random.ts";
import { type FuzzRequest, type Operation, operationsOf, RequestMaker } from "./fuzz/requests.ts";

const REQUESTS = Number(process.env["CPRG_FUZZ_REQUESTS"] ?? 200);
const SEED = Number(process.env["CPRG_FUZZ_SEED"] ?? Date.now() % 2 ** 31);
/** Share of requests to a route that has to come through. */
const SUCCESS_SHARE = 0.4;
const HANGS = "hang";

/** Nothing upgrades a request in memory. */
const UPGRADES = new Set(["GET /v1/jobs/{id}/stream", "GET /v1/execs/{id}/stream"]);

/** Whether what was asked for can be had only once of one thing. */
function isSpent({ method, path }: Operation, status: number): boolean {
  if (method !== "DELETE") return path.endsWith("/rotate") || path.endsWith("/drain");
  return status === 200 || path.startsWith("/v1/workers/");
}

const admin = new KeyRing(parseKeyList(`a:${KEY_A}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }));

const grounds: Ground[] = [];
afterAll(async () => {
  for (const ground of grounds) await ground[Symbol.asyncDispose]();
});

async function fuzzedApp() {
  const store = memoryStore();
  const feed = new Feed(store.events);
  const ground = await Ground.open({ store, feed, queueTenantMax: 1_000_000, queueMax: 1_000_000 });
  ground.plane.setRunner("shell", echoRunner).setRunner("agent", echoRunner);
  grounds.push(ground);
  const started = await useApp({
    fake: {
      artifacts: { "a.txt": "1" },
      run: async ({ code, spec, out, killed }) => {
        if (code === HANGS || spec.executable === HANGS) return await killed.then(() => 137);
        await out(code);
        return 0;
      },
    },
    app: {
      keys: admin,
      tasks: {
        control: ground.plane,
        feed,
        runners: { shell: () => undefined, agent: () => undefined },
      },
    },
    // What is made and never ends must not be refused for that.
    service: { queueMax: Number.MAX_SAFE_INTEGER, queueTenantMax: Number.MAX_SAFE_INTEGER },
  });
  const { json: document } = await started.ask("/openapi.json");
  const sandbox = await openSandbox(started);
  return { ...started, ground, document, sandbox };
}

type Asking = Pick<Awaited<ReturnType<typeof useApp>>, "ask">;

/** The path of a sandbox with a file in it, which stays open. */
async function openSandbox({ ask }: Asking): Promise<string> {
  const body = { idle_seconds: 86_400, lifetime_seconds: 86_400 };
  const opened = await ask("/v1/sandboxes", { body });
  expect(opened.status).toBe(201);
  const path = `/v1/sandboxes/${opened.json.sandbox_id}`;
  const headers = { "Content-Length": "1" };
  const put = await ask(`${path}/files/a.txt`, { method: "PUT", body: "1", headers });
  expect(put.status).toBe(204);
  return path;
}

/** Runs something in a sandbox, and ends it; one with little time may have ended by itself. */
async function useUp({ ask }: Asking, sandbox: string): Promise<void> {
  const ran = await ask(`${sandbox}/execs`, { body: { argv: ["x"] } });
  expect([200, 409]).toContain(ran.status);
  const ended = await ask(sandbox, { method: "DELETE" });
  expect([200, 409]).toContain(ended.status);
  const after = await ask(`${sandbox}/execs`, { body: { argv: ["x"] } });
  expect(after.status).toBe(409);
}

/** An exec that has ended, for what looks; one that runs, for what uses it. */
async function execFor({ ask, sandbox }: Fuzzed, { method }: Operation): Promise<string> {
  const isUsed = method !== "GET";
  const body = { argv: [isUsed ? HANGS : "x"] };
  const { json } = await ask(`${sandbox}/execs?wait_seconds=${isUsed ? 0 : 60}`, { body });
  return json.exec_id;
}

type Fuzzed = Awaited<ReturnType<typeof fuzzedApp>>;

/** A job that has ended, for what looks; one that runs, for what ends it. */
async function jobFor({ ask }: Fuzzed, { method }: Operation): Promise<string> {
  const code = method === "DELETE" ? HANGS : "1";
  const { json } = await ask("/v1/jobs", { body: python(code) });
  if (method !== "DELETE") await ask(`/v1/jobs/${json.job_id}/result`);
  return json.job_id;
}

/** A task that waits, for what ends it; one that was cancelled, for what looks. */
async function taskFor({ ask }: Fuzzed, { method }: Operation): Promise<string> {
  const { json } = await ask("/v1/tasks", { body: { input: 1, labels: { none: "such" } } });
  if (method !== "DELETE") await ask(`/v1/tasks/${json.task_id}`, { method: "DELETE" });
  return json.task_id;
}

/** A token that nobody uses. */
async function mintToken({ ask }: Fuzzed): Promise<string> {
  const minted = await ask("/v1/worker-tokens", { body: { expires_in_seconds: 60 } });
  expect(minted.status).toBe(201);
  return minted.json.token_id;
}

/** A key that nobody uses. */
async function makeKey({ ask }: Fuzzed): Promise<string> {
  const made = await ask("/v1/keys", { body: {} });
  expect(made.status).toBe(201);
  return made.json.key_id;
}

/** The path of an operation such that there is something: made for it, where it needs that. */
async function placeFor(fuzzed: Fuzzed, operation: Operation): Promise<string> {
  const { path } = operation;
  if (!path.includes("{")) return path;
  const filled = (id: string) => path.replace("{id}", id).replace("{path}", "a.txt");
  if (path.startsWith("/v1/jobs/")) return filled(await jobFor(fuzzed, operation));
  if (path.startsWith("/v1/execs/")) return filled(await execFor(fuzzed, operation));
  if (path.startsWith("/v1/keys/")) return filled(await makeKey(fuzzed));
  if (path.startsWith("/v1/tasks/")) return filled(await taskFor(fuzzed, operation));
  if (path.startsWith("/v1/workers/"))
    return filled((await fuzzed.ground.worker({ isIdle: true })).id);
  if (path.startsWith("/v1/worker-tokens/")) return filled(await mintToken(fuzzed));
  if (!path.startsWith("/v1/sandboxes/")) throw new Error(`nothing makes ${path}`);
  return filled((await openSandbox(fuzzed)).split("/").at(-1) ?? "");
}

/** Ends the sandbox that a place was in: a tenant may have few. */
async function leave({ ask }: Fuzzed, place: string): Promise<void> {
  const [sandbox] = /^\/v1\/sandboxes\/[^/]+/.exec(place) ?? [];
  if (sandbox !== undefined) await ask(sandbox, { method: "DELETE" });
}

/** What has ended cannot be ended; a key stays revoked, however often that is asked for. */
async function deleteAgain({ ask }: Fuzzed, place: string): Promise<void> {
  // A worker that was removed dials again, and may be back by now.
  if (place.startsWith("/v1/workers/")) return;
  const { status } = await ask(place, { method: "DELETE" });
  const isRevoked = /^\/v1\/(?:keys|worker-tokens)\//.test(place);
  expect([place, status]).toEqual([place, isRevoked ? 200 : 409]);
}

/** Where the next request goes: elsewhere, when the last one used up what was there. */
async function nextPlace(
  fuzzed: Fuzzed,
  { operation, place, status }: { operation: Operation; place: string; status: number },
): Promise<string> {
  if (status >= 300 || !isSpent(operation, status)) return place;
  if (operation.method === "DELETE") await deleteAgain(fuzzed, place);
  return await placeFor(fuzzed, operation);
}

async function tryRoute(
  fuzzed: Fuzzed,
  operation: Operation,
  parts: { readonly maker: RequestMaker; readonly check: AnswerCheck },
): Promise<number> {
  let successes = 0;
  let place = await placeFor(fuzzed, operation);
  for (let count = 0; count < REQUESTS; count += 1) {
    const request = parts.maker.make(operation, place);
    const answer = await fuzzed.ask(request.path, request);
    const isSame = request.method === operation.method;
    const problem = isSame ? parts.check.problem(operation, answer) : failure(answer);
    if (problem !== null) throw new Error(`${shown(request)}: ${problem}`);
    if (answer.status < 300) successes += 1;
    if (operation.path === "/v1/sandboxes" && answer.status === 201) {
      await useUp(fuzzed, answer.headers.get("location") ?? "");
    }
    if (isSame) place = await nextPlace(fuzzed, { operation, place, status: answer.status });
  }
  await leave(fuzzed, place);
  return successes;
}

function failure({ status, text }: { status: number; text: string }): string | null {
  return status >= 500 ? `it failed: ${text}` : null;
}

function shown({ method, path, body, headers }: FuzzRequest): string {
  return `seed ${SEED}, ${JSON.stringify({ method, path, body, headers }).slice(0, 2000)}`;
}

test(
  "no route fails, and every answer is described",
  async () => {
    const fuzzed = await fuzzedApp();
    const maker = new RequestMaker(fuzzed.document, new Random(SEED));
    const check = new AnswerCheck(fuzzed.document);
    for (const operation of operationsOf(fuzzed.document)) {
      const route = `${operation.method} ${operation.path}`;
      const successes = await tryRoute(fuzzed, operation, { maker, check });
      const least = UPGRADES.has(route) ? 0 : REQUESTS * SUCCESS_SHARE;
      expect(`${route}: ${successes >= least ? "enough" : successes}`).toBe(`${route}: enough`);
    }
  },
  1_200 * REQUESTS,
);

test("what runs still, and what is the whole workspace, is answered as described", async () => {
  const { ask, document, sandbox } = await fuzzedApp();
  const check = new AnswerCheck(document);
  const operations = operationsOf(document);
  const expectFit = async (
    status: number,
    path: string,
    { route, ...how }: { route: string } & NonNullable<Parameters<typeof ask>[1]>,
  ) => {
    const operation = operations.find(({ method, path: at }) => `${method} ${at}` === route);
    const answer = await ask(path, how);
    expect([path, answer.status]).toEqual([path, status]);
    expect(operation && check.problem(operation, answer)).toBeNull();
    return answer;
  };
  const started = await expectFit(202, `${sandbox}/execs?wait_seconds=0`, {
    route: "POST /v1/sandboxes/{id}/execs",
    body: { argv: [HANGS] },
  });
  const exec = started.headers.get("location") ?? "";
  for (const [status, place] of [
    [202, "/result?wait_seconds=0"],
    [200, "/replay"],
    [200, ""],
  ] as const) {
    const route = `GET /v1/execs/{id}${place.split("?")[0]}`;
    await expectFit(status, `${exec}${place}`, { route });
  }
  await expectFit(200, exec, { route: "DELETE /v1/execs/{id}", method: "DELETE" });
  const route = "GET /v1/sandboxes/{id}/files/{path}";
  await expectFit(200, `${sandbox}/files/?format=tar`, { route });
  await expectFit(406, `${sandbox}/files/`, { route, headers: { Accept: "image/png" } });
});
