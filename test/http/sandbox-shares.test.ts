import { expect, test } from "bun:test";
import { KEY_A, KEY_B, useApp } from "./fixture.ts";

test("what a tenant holds open leaves memory for others", async () => {
  const { ask } = await useApp({ sandboxes: { tenantMemMb: 600 } });
  const open = (mem_mb: number, key = KEY_A) =>
    ask("/v1/sandboxes", { body: { limits: { mem_mb } }, key });
  const first = await open(300);
  // Two that come at once count each other.
  const both = await Promise.all([open(200), open(200)]);
  expect(both.map(({ status }) => status).sort()).toEqual([201, 429]);
  expect(both.find(({ status }) => status === 429)?.json).toMatchObject({
    reason: "TENANT_MEMORY",
    field: "limits.mem_mb",
  });
  expect((await open(600, KEY_B)).status).toBe(201);
  const path = `/v1/sandboxes/${first.json.sandbox_id}`;
  expect((await ask(path, { method: "DELETE" })).status).toBe(200);
  expect((await open(400)).status).toBe(201);
});

test("a tenant whose logs take what they may starts no program and opens no sandbox; others do", async () => {
  const { ask } = await useApp({ sandboxes: { tenantBytesMax: 8192 } });
  const open = (key = KEY_A) => ask("/v1/sandboxes", { body: {}, key });
  const path = `/v1/sandboxes/${(await open()).json.sandbox_id}/execs`;
  const start = () => ask(path, { body: { argv: ["x"] } });
  let started = 0;
  let last = await start();
  while (last.status === 200 && started < 100) {
    started += 1;
    last = await start();
  }
  expect(started).toBeGreaterThan(0);
  for (const refused of [last, await open()]) {
    expect(refused).toMatchObject({ status: 507, json: { reason: "TENANT_STORAGE_FULL" } });
  }
  expect((await ask(path)).json.execs).toHaveLength(started);
  expect((await open(KEY_B)).status).toBe(201);
});
