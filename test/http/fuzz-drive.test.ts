// The driver of the fuzz: how much it sends within which time, and that it goes red.

import { expect, test } from "bun:test";
import type { Answer, Ask } from "./fixture.ts";
import { driveRoutes, REQUESTS_LEAST, reportLine } from "./fuzz/drive.ts";

const document = {
  components: {
    schemas: { Thing: { type: "object", required: ["a"], properties: { a: { type: "integer" } } } },
  },
  paths: {
    "/v1/things": { get: operation() },
    "/v1/secrets": { get: { ...operation(), "x-admin": true } },
  },
};

function operation() {
  const content = { "application/json": { schema: { $ref: "#/components/schemas/Thing" } } };
  return { parameters: [], responses: { 200: { content }, 403: {}, 404: {} } };
}

function answer(status: number, json: unknown): Answer {
  const text = JSON.stringify(json);
  return { status, headers: new Headers({ "Content-Type": "application/json" }), text, json };
}

/** Drives a server that answers everything but the making of its sandbox as it is told. */
async function drive(
  thing: (path: string, how: Ask) => Answer,
  options: { readonly requests?: number; readonly routeMs?: number; readonly seed?: number } = {},
) {
  const asked: { readonly path: string; readonly how: Ask }[] = [];
  const reports = await driveRoutes({
    fuzzed: {
      ask: async (path, how = {}) => {
        if (path === "/v1/sandboxes") return answer(201, { sandbox_id: "s" });
        if (path.startsWith("/v1/sandboxes/")) return { ...answer(204, null), text: "" };
        asked.push({ path, how });
        return thing(path, how);
      },
      adminKey: "admin",
      ...{ quickJob: {}, endlessJob: {}, quickExec: {}, endlessExec: {}, isExecMortal: false },
      openWorker: async () => "w",
    },
    document,
    ...{ requests: 10, routeMs: 60_000, seed: 1, lanes: 2, ...options },
  });
  return { reports, asked };
}

const good = () => answer(200, { a: 1 });

test("a route gets as many requests as were asked for, or as there is time for, and never too few", async () => {
  for (const [requests, routeMs, sent] of [
    [10, 60_000, 10],
    [REQUESTS_LEAST + 50, 60_000, REQUESTS_LEAST + 50],
    [REQUESTS_LEAST + 50, 0, REQUESTS_LEAST],
  ] as const) {
    const { reports } = await drive(good, { requests, routeMs });
    expect(reports.map((report) => report.sent)).toEqual([sent, sent]);
    const line = reportLine(reports, requests);
    expect(line).toStartWith(`fuzz: ${2 * sent} requests to 2 routes`);
    const cut = line.split("; ").find((part) => part.startsWith("cut short by time: ")) ?? "";
    expect(cut.includes(`GET /v1/things ${sent}`)).toBe(sent < requests);
  }
});

test("the same seed sends the same, whatever other routes do meanwhile", async () => {
  const sent = async (seed: number, status: number) => {
    const empty = { ...answer(status, null), text: "" };
    const { asked } = await drive(() => empty, { requests: 50, seed });
    return asked.filter(({ how }) => how.method === "GET").map(({ path }) => path);
  };
  const things = (paths: string[]) => paths.filter((path) => path.startsWith("/v1/things"));
  expect(things(await sent(7, 200))).toEqual(things(await sent(7, 404)));
  expect(await sent(7, 200)).not.toEqual(await sent(8, 200));
});

test("what only administrators may is asked with their key mostly, and the rest with a tenant's", async () => {
  const { asked } = await drive(good, { requests: 200 });
  const share = (path: string) => {
    const own = asked.filter((one) => one.path === path);
    return own.filter(({ how }) => how.key === "admin").length / own.length;
  };
  expect(share("/v1/secrets")).toBeGreaterThan(0.7);
  expect(share("/v1/things")).toBeGreaterThan(0);
  expect(share("/v1/things")).toBeLessThan(0.3);
});

test.each([
  ["a failure", answer(500, {}), "it failed"],
  ["a status that is not described", answer(418, {}), "status 418 is not described"],
  ["a body that does not fit", answer(200, { a: "x" }), "must be integer"],
  ["a type that is not described", { ...good(), headers: new Headers() }, 'type "" of 200'],
])("%s is told, with the seed", async (_, bad, text) => {
  const driven = drive(() => bad, { seed: 99 });
  await expect(driven).rejects.toThrow(text);
  await expect(drive(() => bad, { seed: 99 })).rejects.toThrow("seed 99");
});
