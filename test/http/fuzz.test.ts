// Every route of the description, with requests made from it: none fails, every answer is one that
// is described, and most come through. CPRG_FUZZ_REQUESTS sets how many a route gets, within
// CPRG_FUZZ_ROUTE_SECONDS but never fewer than 200; CPRG_FUZZ_SEED which. test/e2e/fuzz.test.ts does the
// same to the executable.

import { afterAll, expect, test } from "bun:test";
import { Feed } from "../../src/record/feed.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { Ground } from "../control-plane/ground.ts";
import { echoRunner, KEY_A, KEY_ADMIN, python, useApp } from "./fixture.ts";
import { AnswerCheck } from "./fuzz/answers.ts";
import { driveRoutes, driveSettings, REQUESTS_LEAST, reportLine } from "./fuzz/drive.ts";
import { type Fuzzed, openSandbox } from "./fuzz/places.ts";
import { operationsOf } from "./fuzz/requests.ts";

const { requests, seed, routeMs } = driveSettings({ requests: REQUESTS_LEAST, routeSeconds: 20 });
const HANGS = "hang";

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
      keys: new KeyRing([
        ...parseKeyList(`a:${KEY_A}`, { role: "tenant", source: "CPRG_API_KEYS" }),
        ...parseKeyList(`a:${KEY_ADMIN}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }),
      ]),
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
  const fuzzed: Fuzzed = {
    ask: started.ask,
    adminKey: KEY_ADMIN,
    quickJob: python("1"),
    endlessJob: python(HANGS),
    quickExec: { argv: ["x"] },
    endlessExec: { argv: [HANGS] },
    isExecMortal: false,
    openWorker: async () => (await ground.worker({ isIdle: true })).id,
  };
  return { ...started, document, fuzzed };
}

test(
  "no route fails, and every answer is described",
  async () => {
    const { fuzzed, document } = await fuzzedApp();
    const reports = await driveRoutes({ fuzzed, document, seed, requests, routeMs, lanes: 1 });
    process.stderr.write(`${reportLine(reports, requests)}\n`);
    expect(reports.filter(({ successes, least }) => successes < least)).toEqual([]);
    expect(reports.filter(({ sent }) => sent < Math.min(requests, REQUESTS_LEAST))).toEqual([]);
  },
  1_200 * REQUESTS_LEAST + 60 * routeMs,
);

test("what runs still, and what is the whole workspace, is answered as described", async () => {
  const { ask, document } = await fuzzedApp();
  const sandbox = await openSandbox({ ask });
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
