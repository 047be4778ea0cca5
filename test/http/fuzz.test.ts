// Every route of the description, with requests made from it: none fails, every answer is one that
// is described, and most come through. CPRG_FUZZ_REQUESTS sets how many a route gets, CPRG_FUZZ_SEED
// which.

import { expect, test } from "bun:test";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { KEY_A, python, useApp } from "./fixture.ts";
import { AnswerCheck } from "./fuzz/answers.ts";
import { Random } from "./fuzz/random.ts";
import { type FuzzRequest, type Operation, operationsOf, RequestMaker } from "./fuzz/requests.ts";

const REQUESTS = Number(process.env["CPRG_FUZZ_REQUESTS"] ?? 200);
const SEED = Number(process.env["CPRG_FUZZ_SEED"] ?? Date.now() % 2 ** 31);
/** Share of requests to a route that has to come through. */
const SUCCESS_SHARE = 0.4;
const HANGS = "hang";

/** Nothing upgrades a request in memory. */
const UPGRADES = new Set(["GET /v1/jobs/{id}/stream"]);

const admin = new KeyRing(parseKeyList(`a:${KEY_A}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }));

async function fuzzedApp() {
  const started = await useApp({
    fake: {
      artifacts: { "a.txt": "1" },
      run: async ({ code, out, killed }) => {
        if (code === HANGS) return await killed.then(() => 137);
        await out(code);
        return 0;
      },
    },
    app: { keys: admin },
  });
  const { json: document } = await started.ask("/openapi.json");
  return { ...started, document };
}

type Fuzzed = Awaited<ReturnType<typeof fuzzedApp>>;

/** A job that has ended, for what looks; one that runs, for what ends it. */
async function jobFor({ ask }: Fuzzed, { method }: Operation): Promise<string> {
  const code = method === "DELETE" ? HANGS : "1";
  const { json } = await ask("/v1/jobs", { body: python(code) });
  if (method !== "DELETE") await ask(`/v1/jobs/${json.job_id}/result`);
  return json.job_id;
}

/** The path of an operation such that there is something: made for it, where it needs that. */
async function placeFor(fuzzed: Fuzzed, operation: Operation): Promise<string> {
  if (!operation.path.includes("{")) return operation.path;
  if (!operation.path.startsWith("/v1/jobs/")) throw new Error(`nothing makes ${operation.path}`);
  const id = await jobFor(fuzzed, operation);
  return operation.path.replace("{id}", id).replace("{path}", "a.txt");
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
    if (isSame && operation.method === "DELETE" && answer.status === 200) {
      const again = await fuzzed.ask(place, { method: "DELETE" });
      expect([place, again.status]).toEqual([place, 409]);
      place = await placeFor(fuzzed, operation);
    }
  }
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
