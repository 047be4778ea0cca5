// A key that is revoked while its request is under way: what was not done is refused and stays
// undone, what was done is answered as done, and the audit log says which.

import { describe, expect, test } from "bun:test";
import { rawClient, requestHead } from "../e2e/raw-client.ts";
import { type Ask, KEY_ADMIN, python, requestInit, useApp, useServer } from "./fixture.ts";

const admin = (ask: Ask = {}): Ask => ({ ...ask, key: KEY_ADMIN });
const untilKilled = { run: () => new Promise<number>(() => undefined) };

/** A step of the app that waits until it is let go. */
function gate<A extends unknown[], T>(work: (...args: A) => Promise<T>) {
  const reached = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  const held = async (...args: A): Promise<T> => {
    reached.resolve();
    await opened.promise;
    return await work(...args);
  };
  return { held, reached: reached.promise, open: () => opened.resolve() };
}

/** Lets whatever goes on behind an answer come to its end. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** An app in memory with a key that can be revoked. */
async function useKey(fixture: Parameters<typeof useApp>[0] = {}) {
  const used = await useApp(fixture);
  const { key, key_id } = (await used.ask("/v1/keys", admin({ body: { tenant: "a" } }))).json;
  const revoke = () => used.ask(`/v1/keys/${key_id}`, admin({ method: "DELETE" }));
  /** What the audit log says of an action. */
  const audited = async (action: string) => {
    const { text } = await used.ask("/v1/audit", admin());
    const rows = text.trim().split("\n").slice(0, -1);
    const all = rows.map((line) => JSON.parse(line).data);
    return all
      .filter((one) => one.action === action)
      .map(({ outcome, status }) => [outcome, status]);
  };
  return { ...used, key, revoke, audited };
}

describe("a request whose key is revoked", () => {
  test("while its body comes is refused, and the rest of the body starts nothing", async () => {
    await using used = await useServer();
    const made = (await used.ask("/v1/keys", admin({ body: { tenant: "a" } }))).json;
    const body = JSON.stringify(python("1"));
    using client = rawClient(used.server.url.href);
    const headers = {
      Authorization: `Bearer ${made.key}`,
      "Content-Type": "application/json",
      "Content-Length": body.length,
    };
    client.send(requestHead("POST /v1/jobs", headers));
    client.send(body.slice(0, 5));
    while ((await used.ask(`/v1/keys/${made.key_id}`, admin())).json.last_used_at === null) {
      await Bun.sleep(1);
    }
    await used.ask(`/v1/keys/${made.key_id}`, admin({ method: "DELETE" }));
    expect(await client.status).toBe(401);
    client.send(body.slice(5));
    // What came behind it on other connections has been answered, and so would it have been.
    for (let asked = 0; asked < 5; asked += 1) await used.ask("/v1/status");
    await settle();
    expect((await used.ask("/v1/jobs")).json.jobs).toEqual([]);
  });

  test("before its job is stored is refused, and there is no job", async () => {
    const used = await useKey();
    const { held, reached, open } = gate(used.store.jobs.queuedCount.bind(used.store.jobs));
    used.store.jobs.queuedCount = held;
    const asked = used.ask("/v1/jobs", { body: python("1"), key: used.key });
    await reached;
    await used.revoke();
    open();
    expect(await asked).toMatchObject({ status: 401, json: { reason: "KEY_REVOKED" } });
    await settle();
    expect((await used.ask("/v1/jobs")).json.jobs).toEqual([]);
    expect(await used.audited("job.submit")).toEqual([["refused", 401]]);
  });

  test("when its job is stored is answered with the job", async () => {
    const used = await useKey();
    const { held, reached, open } = gate(used.store.jobs.insert.bind(used.store.jobs));
    used.store.jobs.insert = held;
    const asked = used.ask("/v1/jobs", { body: python("1"), key: used.key });
    await reached;
    await used.revoke();
    open();
    const { status, json } = await asked;
    expect(status).toBe(201);
    expect((await used.ask(`/v1/jobs/${json.job_id}`)).status).toBe(200);
    expect(await used.audited("job.submit")).toEqual([["ok", 201]]);
  });

  test("while its job is cancelled is answered with what was done", async () => {
    const used = await useKey({ fake: { ...untilKilled, ignoresKill: true } });
    const { job_id } = (await used.ask("/v1/jobs", { body: python("1"), key: used.key })).json;
    while ((await used.ask(`/v1/jobs/${job_id}`)).json.status !== "running") await Bun.sleep(1);
    const asked = used.ask(`/v1/jobs/${job_id}`, { method: "DELETE", key: used.key });
    while (used.jobs.waiting === 0) await Bun.sleep(1);
    await used.revoke();
    expect((await asked).status).toBe(202);
    expect(await used.audited("job.cancel")).toEqual([["ok", 202]]);
  });

  test.each(["open", "insert"] as const)(
    "while its sandbox is made (%s) is refused, and no sandbox stays",
    async (step) => {
      const used = await useKey();
      const { provider, store } = used;
      const opening = gate(provider.open.bind(provider));
      const inserting = gate(store.sandboxes.insert.bind(store.sandboxes));
      if (step === "open") provider.open = opening.held;
      else store.sandboxes.insert = inserting.held;
      const { reached, open } = step === "open" ? opening : inserting;
      const asked = used.ask("/v1/sandboxes", { body: {}, key: used.key });
      await reached;
      await used.revoke();
      open();
      expect(await asked).toMatchObject({ status: 401, json: { reason: "KEY_REVOKED" } });
      expect(used.options.sandboxes.count()).toBe(0);
      expect(provider.open_).toBe(0);
      expect((await used.ask("/v1/sandboxes")).json.sandboxes).toEqual([]);
      expect(await used.audited("sandbox.create")).toEqual([["refused", 401]]);
    },
  );

  test("before its program is stored is refused, and none runs", async () => {
    const used = await useKey();
    const id = (await used.ask("/v1/sandboxes", { body: {} })).json.sandbox_id;
    const { held, reached, open } = gate(used.store.storedBytes.bind(used.store));
    used.store.storedBytes = held;
    const body = { argv: ["x"] };
    const asked = used.ask(`/v1/sandboxes/${id}/execs`, { body, key: used.key });
    await reached;
    await used.revoke();
    open();
    expect((await asked).status).toBe(401);
    await settle();
    expect((await used.ask(`/v1/sandboxes/${id}/execs`)).json.execs).toEqual([]);
  });

  test("loses a replay that is being sent, which is JSON", async () => {
    const text = "x".repeat(1024);
    const used = await useKey({
      fake: {
        run: async ({ out }) => {
          for (let count = 0; count < 1024; count += 1) await out(text);
          return 0;
        },
      },
    });
    const { job_id } = (await used.ask("/v1/jobs", { body: python("1") })).json;
    await used.ask(`/v1/jobs/${job_id}/result`);
    const paths = ["replay", "result"].map((end) => `/v1/jobs/${job_id}/${end}`);
    const bodies = await Promise.all(
      paths.map(async (path) => await used.app.request(path, requestInit({ key: used.key }))),
    );
    const readers = bodies.map(({ body }) => body?.getReader());
    for (const reader of readers) expect((await reader?.read())?.done).toBe(false);
    await used.revoke();
    const drain = async (reader: (typeof readers)[number]) => {
      while (!(await reader?.read())?.done) {}
    };
    for (const reader of readers) await expect(drain(reader)).rejects.toThrow();
  });
});

describe("a client that goes away", () => {
  test.each(["open", "insert"] as const)(
    "while its sandbox is made (%s) leaves none open",
    async (step) => {
      const used = await useKey();
      const { provider, store } = used;
      const opening = gate(provider.open.bind(provider));
      const inserting = gate(store.sandboxes.insert.bind(store.sandboxes));
      if (step === "open") provider.open = opening.held;
      else store.sandboxes.insert = inserting.held;
      const { reached, open } = step === "open" ? opening : inserting;
      const gone = new AbortController();
      const asked = used.ask("/v1/sandboxes", { body: {}, signal: gone.signal });
      await reached;
      gone.abort();
      open();
      expect((await asked).status).toBe(499);
      expect(used.options.sandboxes.count()).toBe(0);
      expect(provider.open_).toBe(0);
    },
  );

  test("from an event stream is no error of the server's", async () => {
    const errors: string[] = [];
    const log = {
      debug: () => undefined,
      info: () => undefined,
      warn: () => undefined,
      error: (message: string) => void errors.push(message),
    };
    const used = await useApp({ fake: untilKilled, app: { log } });
    const { job_id } = (await used.ask("/v1/jobs", { body: python("1") })).json;
    const path = `/v1/jobs/${job_id}/events`;
    for (let count = 0; count < 3; count += 1) {
      const { body } = await used.app.request(path, requestInit({}));
      const reader = body?.getReader();
      while (
        !String(new TextDecoder().decode((await reader?.read())?.value)).includes("started")
      ) {}
      const next = reader?.read();
      await reader?.cancel();
      await next;
    }
    expect(used.feed.subscribers).toBe(0);
    expect(errors).toEqual([]);
  });
});
