// Whatever changes something is in the audit log: driven by the routes, so that none is forgotten.

import { expect, test } from "bun:test";
import { KEY_ADMIN, python, useApp } from "./fixture.ts";
import { exampleOf, pathWithId, routesOf } from "./route-table.ts";

/** What goes on in a program that was started, whose start and end are recorded. */
const SPARED = ["POST /v1/execs/:id/input", "POST /v1/execs/:id/resize"];

const ACTIONS: Readonly<Record<string, string>> = {
  "POST /v1/jobs": "job.submit",
  "POST /v1/jobs/batch": "job.submit",
  "DELETE /v1/jobs/:id": "job.cancel",
  "POST /v1/sandboxes": "sandbox.create",
  "DELETE /v1/sandboxes/:id": "sandbox.delete",
  "POST /v1/sandboxes/:id/execs": "exec.start",
  "PUT /v1/sandboxes/:id/files/*": "file.put",
  "DELETE /v1/sandboxes/:id/files/*": "file.delete",
  "DELETE /v1/execs/:id": "exec.cancel",
  "POST /v1/execs/:id/signal": "exec.signal",
  "POST /v1/keys": "key.create",
  "POST /v1/keys/:id/rotate": "key.rotate",
  "DELETE /v1/keys/:id": "key.revoke",
  "POST /v1/tasks": "task.submit",
  "DELETE /v1/tasks/:id": "task.cancel",
  "POST /v1/workers/:id/release": "worker.release",
  "POST /v1/workers/:id/drain": "worker.drain",
  "DELETE /v1/workers/:id": "worker.remove",
  "POST /v1/worker-tokens": "worker_token.create",
  "DELETE /v1/worker-tokens/:id": "worker_token.revoke",
};

/** An id that a worker gives itself is recorded only when there is such a worker. */
const NO_WORKER = "nobody";

async function objects({ ask }: Pick<Awaited<ReturnType<typeof useApp>>, "ask">) {
  const jobs = (await ask("/v1/jobs", { body: python("1"), key: KEY_ADMIN })).json.job_id;
  const sandboxes = (await ask("/v1/sandboxes", { body: {}, key: KEY_ADMIN })).json.sandbox_id;
  const body = { argv: ["x"] };
  const exec = await ask(`/v1/sandboxes/${sandboxes}/execs`, { body, key: KEY_ADMIN });
  const keys = (await ask("/v1/keys", { body: {}, key: KEY_ADMIN })).json.key_id;
  const tasks = (await ask("/v1/tasks", { body: { input: 1 }, key: KEY_ADMIN })).json.task_id;
  const asked = { body: { expires_in_seconds: 60 }, key: KEY_ADMIN };
  const tokens = (await ask("/v1/worker-tokens", asked)).json.token_id;
  return {
    ...{ jobs, sandboxes, execs: exec.json.exec_id, keys },
    ...{ tasks, workers: NO_WORKER, "worker-tokens": tokens },
  };
}

test("every route that changes something is in the audit log, with whom and what", async () => {
  const used = await useApp();
  const ids = await objects(used);
  const recorded = { ...ids, workers: null };
  const routes = routesOf(used.app).filter(({ method }) => method !== "GET");
  const named = routes.map(({ method, path }) => `${method} ${path}`);
  expect(named.filter((route) => !SPARED.includes(route)).sort()).toEqual(
    Object.keys(ACTIONS).sort(),
  );
  const audit = async () =>
    (await used.ask("/v1/audit", { key: KEY_ADMIN })).text
      .split("\n")
      .flatMap((line) => (line.includes('"kind":"audit"') ? [JSON.parse(line).data] : []));
  for (const route of routes) {
    const before = (await audit()).length;
    const path = pathWithId(route, ids);
    const { status } = await used.ask(path, {
      ...exampleOf(route),
      method: route.method,
      key: KEY_ADMIN,
    });
    // The first is the reading of the log before.
    const [, ...records] = (await audit()).slice(before);
    const name = `${route.method} ${route.path}`;
    const action = ACTIONS[name];
    const expected = action === undefined ? [] : [[name, action]];
    expect(records.map((record) => [name, record.action])).toEqual(expected);
    for (const record of records) {
      expect(record.key_id).not.toBeNull();
      if (route.path !== "/v1/jobs/batch") expect([name, record.status]).toEqual([name, status]);
      const folder = route.path.split("/")[2] as keyof typeof ids;
      if (
        route.path.includes(":id") &&
        !route.path.endsWith("/rotate") &&
        !route.path.endsWith("/execs")
      ) {
        expect([name, record.object]).toEqual([name, recorded[folder]]);
      }
    }
  }
});
