// Who is let in: minted tokens, their ends, the shared bearer, and whose tasks a worker gets.

import { describe, expect, test } from "bun:test";
import { SignJWT } from "jose";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import { WORKER_TOKEN_BYTES_MAX } from "../../src/control-plane/token-signer.ts";
import { isLoopback, workerAdmission } from "../../src/control-plane/worker-admission.ts";
import {
  WORKER_TOKEN_NAME_CHARS_MAX,
  WORKER_TOKEN_SECONDS_MAX,
} from "../../src/control-plane/worker-tokens.ts";
import { ephemeralControlKeys } from "../../src/store/control-keys.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { failure } from "../store/samples.ts";
import { Ground, TOKEN, until } from "./ground.ts";

const HOUR = { expiresInSeconds: 3600 };

test("a minted token lets its worker in, with its labels and tenants", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const { token, view } = await plane.mintWorkerToken({
    ...HOUR,
    workerId: "rack-*",
    labels: { gpu: "1", zone: "a" },
    tenants: ["acme"],
    name: "rack",
  });
  expect(token.length).toBeLessThan(WORKER_TOKEN_BYTES_MAX);
  await ground.worker({ isIdle: true, token, id: "rack-1", labels: { gpu: "9", own: "x" } });
  expect(plane.workers()).toMatchObject([
    { id: "rack-1", labels: { gpu: "1", zone: "a", own: "x" }, tenants: ["acme"] },
  ]);
  expect(await plane.workerTokens()).toEqual([view]);
  expect(JSON.stringify(view)).not.toContain(token.slice(-20));
});

test("a tenant's tasks go to its own workers and shared ones, never to another's", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner(async () => "done");
  const { token } = await plane.mintWorkerToken({ ...HOUR, tenants: ["acme"] });
  await ground.worker({ isIdle: true, token, id: "of-acme" });
  const foreign = await plane.submit(1, { tenant: "other" });
  expect(foreign.waiting).toEqual({
    code: "no_worker_matches",
    detail: "none of 1 worker works for the tenant",
  });
  const own = await plane.submit(1, { tenant: "acme" });
  expect(await plane.waitTask(own.id)).toMatchObject({ workerId: "of-acme" });
  expect((await plane.task(foreign.id)).status).toBe("queued");
  const nobody = new AbortController();
  const claiming = plane.registry.claim({ taskId: "t", epoch: 1 }, { signal: nobody.signal });
  nobody.abort(new Error("nobody is shared"));
  expect(await claiming.catch((error: Error) => error.message)).toBe("nobody is shared");
  expect(await failure(plane.task(own.id, "other"))).toMatchObject({ code: "not_found" });
  expect((await plane.tasks({ tenant: "other", limit: 9 })).tasks.map(({ id }) => id)).toEqual([
    foreign.id,
  ]);
  await ground.worker({ isIdle: true, id: "shared" });
  expect(await plane.waitTask(foreign.id)).toMatchObject({ workerId: "shared" });
});

test("revoking cuts live streams within a second, fails their tasks, and lets nobody in again", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner(
    async (_, { signal }) =>
      await new Promise((resolve) => signal.addEventListener("abort", resolve)),
  );
  const { token, view } = await plane.mintWorkerToken(HOUR);
  const { id, ended, worker } = await ground.worker({ isIdle: true, token });
  const task = await plane.submit(1);
  await ground.has(task.id, "running");
  const atMs = performance.now();
  const revoked = await plane.revokeWorkerToken(view.id);
  expect(revoked.revokedAt).toBeGreaterThanOrEqual(view.createdAt);
  const end = await ended;
  expect(performance.now() - atMs).toBeLessThan(1000);
  expect(end).toMatchObject({ exitCode: 3, error: { reason: "TOKEN_REVOKED" } });
  expect(worker.holder.table.isEmpty).toBe(true);
  expect(await plane.waitTask(task.id)).toMatchObject({ reason: "worker_lost" });
  expect(await plane.revokeWorkerToken(view.id)).toEqual(revoked);
  const again = await ground.start({ isIdle: true, token, id: `${id}-2` });
  expect(await again.ended).toMatchObject({ error: { reason: "TOKEN_REVOKED" } });
  expect(await failure(plane.revokeWorkerToken("none"))).toMatchObject({ code: "not_found" });
});

test("a token that expires cuts its streams, and is forgotten", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const { token } = await plane.mintWorkerToken({ expiresInSeconds: 1.5 });
  const { ended } = await ground.worker({ isIdle: true, token });
  expect(await ended).toMatchObject({ exitCode: 3, error: { reason: "TOKEN_EXPIRED" } });
  const late = await ground.start({ isIdle: true, token });
  expect(await late.ended).toMatchObject({ exitCode: 3, error: { reason: "TOKEN_EXPIRED" } });
  expect(await plane.workerTokens()).toEqual([]);
});

test("what is no token of this control plane is refused", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const keys = ephemeralControlKeys();
  const claims = { labels: {}, tenants: null };
  const forge = async (alg: string, key: Parameters<SignJWT["sign"]>[0], jti: string) =>
    await new SignJWT(claims)
      .setProtectedHeader({ alg })
      .setIssuer("cprg")
      .setAudience("cprg-worker")
      .setSubject("*")
      .setJti(jti)
      .setExpirationTime("1h")
      .sign(key);
  const { token, view } = await plane.mintWorkerToken(HOUR);
  const [head = "", body = "", signature = ""] = token.split(".");
  const none = Buffer.from('{"alg":"none"}').toString("base64url");
  for (const bad of [
    "x",
    "a.b.c",
    `${TOKEN}x`,
    `${none}.${body}.`,
    `${head}.${Buffer.from("{}").toString("base64url")}.${signature}`,
    await forge("EdDSA", keys.token, view.id),
    await forge("HS256", new Uint8Array(32), view.id),
    "y".repeat(WORKER_TOKEN_BYTES_MAX + 1),
  ]) {
    const { ended } = await ground.start({ isIdle: true, token: bad });
    expect(await ended).toMatchObject({ exitCode: 3, error: { reason: "BAD_TOKEN" } });
  }
});

test("a token that the list does not have lets nobody in: its revocation would be lost, too", async () => {
  const keys = { keys: ephemeralControlKeys(), ownsStore: true } as const;
  const make = () => {
    const store = memoryStore();
    return new ControlPlane({ token: TOKEN }, { ...keys, store, feed: null as never });
  };
  const [first, second] = [make(), make()];
  const { token } = await first.mintWorkerToken(HOUR);
  const local = { address: "127.0.0.1", certificateName: undefined };
  expect(await first.registry.authenticate(token, local)).toBeDefined();
  expect(await failure(second.registry.authenticate(token, local))).toMatchObject({
    reason: "BAD_TOKEN",
  });
  await first.stop();
  await second.stop();
});

test("what a token may say is bounded, and what is wrong is named", async () => {
  const plane = new ControlPlane();
  const many = Array.from({ length: 400 }, (_, at) => `tenant-${at}`);
  for (const [field, request] of [
    ["worker_id", { workerId: "a*b" }],
    ["worker_id", { workerId: "" }],
    ["worker_id", { workerId: "x".repeat(129) }],
    ["labels.?", { labels: { "?": "" } }],
    ["tenants", { tenants: [] }],
    ["tenants[1]", { tenants: ["a", "-"] }],
    ["labels", { tenants: many }],
    ["expires_in_seconds", { expiresInSeconds: 0 }],
    ["expires_in_seconds", { expiresInSeconds: Number.NaN }],
    ["expires_in_seconds", { expiresInSeconds: WORKER_TOKEN_SECONDS_MAX + 1 }],
    ["name", { name: "n".repeat(WORKER_TOKEN_NAME_CHARS_MAX + 1) }],
  ] as const) {
    expect(await failure(plane.mintWorkerToken({ ...HOUR, ...request }))).toMatchObject({ field });
  }
  expect(await plane.workerTokens()).toEqual([]);
  for (const workerId of ["*", "a", "a*", "gpu:1", `${"x".repeat(127)}*`]) {
    await plane.mintWorkerToken({ ...HOUR, workerId });
  }
  const [newest] = await plane.workerTokens();
  expect(newest?.workerId).toBe(`${"x".repeat(127)}*`);
  await plane.stop();
});

describe("the shared bearer", () => {
  const tokens = { authenticate: () => Promise.reject(new Error("minted")) } as never;
  const from = (address: string) => ({ address, certificateName: undefined });

  test("is taken from this host alone, unless that is allowed", async () => {
    const closed = workerAdmission({ tokens, shared: TOKEN, allowShared: false });
    expect(await closed(TOKEN, from("127.0.0.1"))).toMatchObject({ tokenId: null, tenants: null });
    expect(await failure(closed(TOKEN, from("192.0.2.1")))).toMatchObject({ reason: "BAD_TOKEN" });
    expect(await failure(closed(TOKEN, from("")))).toMatchObject({ reason: "BAD_TOKEN" });
    const open = workerAdmission({ tokens, shared: TOKEN, allowShared: true });
    expect(await open(TOKEN, from("192.0.2.1"))).toMatchObject({ tokenId: null });
    const none = workerAdmission({ tokens, shared: undefined, allowShared: true });
    expect(none("", from("127.0.0.1"))).rejects.toThrow("minted");
  });

  test("addresses of this host", () => {
    for (const address of ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]) {
      expect(isLoopback(address)).toBe(true);
    }
    for (const address of [
      "",
      "128.0.0.1",
      "10.0.0.1",
      "::",
      "::ffff:10.0.0.1",
      "127.evil",
      "fe80::1",
    ]) {
      expect(isLoopback(address)).toBe(false);
    }
  });
});

test("workers are drained, removed and told from strangers", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  const { id, ended } = await ground.worker({ isIdle: true });
  expect(await plane.drainWorker(id)).toMatchObject({ status: "draining" });
  expect(await ended).toMatchObject({ exitCode: 0 });
  await until(() => plane.workers().every(({ status }) => status === "lost"));
  const other = await ground.worker({ isIdle: true });
  await plane.removeWorker(other.id);
  expect(await other.ended).toMatchObject({ exitCode: 3, error: { reason: "WORKER_REMOVED" } });
  for (const act of [
    () => plane.drainWorker("nobody"),
    () => plane.removeWorker("nobody"),
    () => plane.releaseWorker("nobody"),
  ]) {
    expect(await failure(act())).toMatchObject({ code: "not_found", reason: "WORKER_NOT_FOUND" });
  }
});

test("a released worker's tasks fail, and it goes on", async () => {
  await using ground = await Ground.open();
  const { plane } = ground;
  plane.setRunner(async (input, { signal }) => {
    if (input === "quick") return "done";
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    return null;
  });
  const { id } = await ground.worker({ isIdle: true });
  const task = await plane.submit("slow");
  await ground.has(task.id, "running");
  const other = await plane.registry
    .claim({ taskId: "x", epoch: 1 }, { signal: AbortSignal.timeout(20) })
    .catch(() => null);
  expect(other).toBeNull();
  await plane.releaseWorker(id);
  expect(await plane.task(task.id)).toMatchObject({ status: "failed", reason: "interrupted" });
  const next = await plane.submit("quick");
  expect(await plane.waitTask(next.id)).toMatchObject({ result: "done", workerId: id });
});
