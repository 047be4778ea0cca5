// What belongs to another tenant is not there, on any route; what is an administrator's is forbidden.

import { describe, expect, test } from "bun:test";
import { newId } from "../../src/core/ids.ts";
import { isAdminPath } from "../../src/http/auth.ts";
import { KEY_A, KEY_ADMIN, KEY_B, python, useApp, useServer } from "./fixture.ts";
import { exampleOf, pathWithId, type Route, routesOf, routesWithIds } from "./route-table.ts";

const UUID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/;
const UPGRADE = { Connection: "Upgrade", Upgrade: "websocket" };

async function useTenants() {
  const used = await useApp();
  const job = await used.ask("/v1/jobs", { body: python("1") });
  const ended = await used.ask("/v1/jobs", { body: python("2") });
  await used.ask(`/v1/jobs/${ended.json.job_id}/result`);
  const sandbox = (await used.ask("/v1/sandboxes", { body: {} })).json.sandbox_id;
  const exec = await used.ask(`/v1/sandboxes/${sandbox}/execs`, { body: { argv: ["x"] } });
  const key = await used.ask("/v1/keys", { body: { tenant: "a" }, key: KEY_ADMIN });
  const task = await used.ask("/v1/tasks", { body: { input: 1 } });
  const body = { expires_in_seconds: 60 };
  const token = await used.ask("/v1/worker-tokens", { body, key: KEY_ADMIN });
  const routes = routesOf(used.app);
  const objects = [{ jobs: job.json.job_id }, { jobs: ended.json.job_id }];
  const ids = objects.map((object) => ({
    ...object,
    sandboxes: sandbox,
    execs: exec.json.exec_id,
    keys: key.json.key_id,
    tasks: task.json.task_id,
    workers: "some-worker",
    "worker-tokens": token.json.token_id,
  }));
  return { ...used, routes, ids };
}

function askAs(used: Awaited<ReturnType<typeof useTenants>>, key: string) {
  return async (
    route: Route,
    path: string,
    { headers = {}, badBody }: { headers?: Record<string, string>; badBody?: string } = {},
  ) => {
    const { body: example, headers: described } = exampleOf(route);
    const body = badBody ?? example;
    const asked = { method: route.method, key, headers: { ...described, ...headers } };
    const answer = await used.ask(path, { ...asked, body });
    return [route.method, route.path, answer.status];
  };
}

/** What a route may be asked with: it must not matter, where nothing is. */
function waysOf({ method }: Route): Parameters<ReturnType<typeof askAs>>[2][] {
  if (method === "GET") return [{}, { headers: UPGRADE }];
  const bad = ["{", "[]", '{"nothing":1}', "x".repeat(2 ** 20 + 1)];
  return [{}, ...bad.map((badBody) => ({ badBody }))];
}

describe("every route", () => {
  test("answers 404 for what is another tenant's, to tenants and administrators", async () => {
    const used = await useTenants();
    const routes = routesWithIds(used.routes).filter(({ path }) => !isAdminPath(path));
    expect(routes.length).toBeGreaterThanOrEqual(5);
    for (const key of [KEY_B, KEY_ADMIN]) {
      const ask = askAs(used, key);
      for (const route of routes) {
        for (const ids of used.ids) {
          const path = pathWithId(route, ids);
          const missing = [route.method, route.path, 404];
          for (const how of waysOf(route)) expect(await ask(route, path, how)).toEqual(missing);
        }
      }
    }
  });

  test("says the same of what is another's and of what is not there", async () => {
    const used = await useTenants();
    for (const route of routesWithIds(used.routes).filter(({ path }) => !isAdminPath(path))) {
      const [ids] = used.ids;
      const nothing = { jobs: newId(), sandboxes: newId(), execs: newId(), tasks: newId() };
      const say = async (object: Record<string, string>) => {
        const path = pathWithId(route, object);
        const { json } = await used.ask(path, {
          ...exampleOf(route),
          method: route.method,
          key: KEY_B,
        });
        return { ...json, request_id: "", detail: json.detail.replace(UUID, "ID") };
      };
      expect(await say(ids as never)).toEqual(await say(nothing));
    }
  });

  test("that an administrator alone may use answers 403 to a tenant, whatever is asked", async () => {
    const used = await useTenants();
    const ask = askAs(used, KEY_A);
    const routes = used.routes.filter(({ path }) => isAdminPath(path));
    expect(routes.length).toBeGreaterThanOrEqual(6);
    for (const route of routes) {
      const path = pathWithId(route, { ...used.ids[0], audit: "x", metrics: "x" });
      expect(await ask(route, path)).toEqual([route.method, route.path, 403]);
      expect(await ask(route, path, { headers: UPGRADE })).toEqual([route.method, route.path, 403]);
    }
    for (const path of [
      "/v1/keys/",
      "/v1/keys/none/at/all",
      "/v1/metrics",
      "/v1/audit/x",
      "/v1/worker-tokens/x",
      "/v1/workers/",
      "/v1/workers/x/none",
    ]) {
      expect([path, (await used.ask(path)).status]).toEqual([path, 403]);
    }
    expect((await used.ask("/v1/keys", { key: KEY_ADMIN })).json.keys).toHaveLength(1);
  });

  test("beneath /v1 needs a key", async () => {
    const used = await useTenants();
    for (const route of used.routes.filter(({ path }) => path.startsWith("/v1"))) {
      const path = pathWithId(route, {
        ...used.ids[0],
        metrics: "x",
        audit: "x",
        status: "x",
        languages: "x",
      });
      const answer = await used.ask(path, { method: route.method, key: null });
      expect([route.method, route.path, answer.status]).toEqual([route.method, route.path, 401]);
    }
  });
});

test("lists show a tenant's own alone", async () => {
  const used = await useTenants();
  expect((await used.ask("/v1/jobs", { key: KEY_B })).json.jobs).toEqual([]);
  expect((await used.ask("/v1/jobs", { key: KEY_ADMIN })).json.jobs).toEqual([]);
  expect((await used.ask("/v1/jobs")).json.jobs).toHaveLength(2);
});

test("an upgrade to what is another tenant's is refused on a real listener", async () => {
  await using used = await useServer();
  const job = await used.ask("/v1/jobs", { body: python("1") });
  const url = `${used.server.url}v1/jobs/${job.json.job_id}/stream`.replace(/^http/, "ws");
  for (const [key, isAllowed] of [
    [KEY_B, false],
    [KEY_ADMIN, false],
    [KEY_A, true],
  ] as const) {
    const socket = new WebSocket(`${url}?key=${key}`);
    const isOpen = await new Promise<boolean>((resolve) => {
      socket.addEventListener("open", () => resolve(true));
      socket.addEventListener("error", () => resolve(false));
    });
    socket.close();
    expect([key, isOpen]).toEqual([key, isAllowed]);
  }
});
