// Whom an id belongs to, and the profiles of waiting for a worker.

import { describe, expect, test } from "bun:test";
import type { Registration } from "../../../src/bridge/metadata.ts";
import { WORKER_SECRET } from "../../../src/bridge/methods.ts";
import { FAST_LIVENESS, LIVENESS, TTL_MARGIN_MS } from "../../../src/control-plane/liveness.ts";
import { SHARED_IDENTITY } from "../../../src/control-plane/worker-identity.ts";
import {
  type Arriving,
  LOST_LISTED_MS,
  WORKERS_MAX,
  WorkerRegistry,
} from "../../../src/control-plane/worker-registry.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { silentLog } from "../../../src/core/log.ts";
import { framePair, type PairEnd } from "../../bridge/frame-pair.ts";

const REGISTRATION: Registration = {
  workerId: "w1",
  name: "",
  labels: {},
  methods: [],
  version: "",
  slots: 1,
  secret: undefined,
  claims: [],
};

const LOCAL = { address: "127.0.0.1", certificateName: undefined };

function registry(): WorkerRegistry {
  return new WorkerRegistry({
    authenticate: () => SHARED_IDENTITY,
    version: "test",
    log: silentLog,
  });
}

function comes(workers: WorkerRegistry, token: string): Promise<Arriving> {
  return workers.authenticate(token, LOCAL);
}

function refusal(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (CprgError.is(error)) return `${error.code} ${error.reason}`;
    throw error;
  }
  return "admitted";
}

const TAKEN = "permission_denied ID_TAKEN";

describe("an id", () => {
  test("without a secret belongs to the token that it came with", async () => {
    const workers = registry();
    const [own, other] = [await comes(workers, "a"), await comes(workers, "b")];
    workers.admit(REGISTRATION, own).connected(framePair()[0]);
    expect(refusal(() => workers.admit(REGISTRATION, other))).toBe(TAKEN);
    expect(refusal(() => workers.admit(REGISTRATION, own))).toBe("admitted");
    workers.close();
  });

  test("with a secret belongs to whoever shows it, whatever the token", async () => {
    const workers = registry();
    const token = await comes(workers, "a");
    const first = { ...REGISTRATION, methods: [WORKER_SECRET] };
    const admitted = workers.admit(first, token);
    const { secret } = admitted.control;
    admitted.connected(framePair()[0]);
    expect(refusal(() => workers.admit({ ...first, secret: "wrong" }, token))).toBe(TAKEN);
    const again = workers.admit({ ...first, secret }, await comes(workers, "b"));
    expect(again.control.secret).toBeUndefined();
    workers.close();
  });

  test("is given a new secret until one was presented; only the last one given counts", async () => {
    const workers = registry();
    const [token, other] = [await comes(workers, "a"), await comes(workers, "b")];
    const first = { ...REGISTRATION, methods: [WORKER_SECRET] };
    const given = [1, 2, 3].map(() => workers.admit(first, token).control.secret);
    expect(new Set(given).size).toBe(3);
    expect(given.every((secret) => typeof secret === "string")).toBe(true);
    expect(refusal(() => workers.admit(first, other))).toBe(TAKEN);
    expect(refusal(() => workers.admit({ ...first, secret: given[1] }, token))).toBe(TAKEN);
    const shown = { ...first, secret: given[2] };
    expect(workers.admit(shown, token).control.secret).toBeUndefined();
    expect(refusal(() => workers.admit(first, token))).toBe(TAKEN);
    expect(refusal(() => workers.admit({ ...first, methods: [] }, token))).toBe(TAKEN);
    expect(refusal(() => workers.admit(shown, token))).toBe("admitted");
    workers.close();
  });

  test("that was away for a restart is given a secret anew, whatever it shows", async () => {
    const workers = registry();
    const old = { ...REGISTRATION, methods: [WORKER_SECRET], secret: "of-another-time" };
    expect(workers.admit(old, await comes(workers, "a")).control.secret).toBeString();
    workers.close();
  });

  test("that comes twice at once is the first one's", async () => {
    const workers = registry();
    const first = workers.admit(REGISTRATION, await comes(workers, "a"));
    const stranger = await comes(workers, "b");
    expect(refusal(() => workers.admit(REGISTRATION, stranger))).toBe(TAKEN);
    first.connected(framePair()[0]);
    expect(workers.connected).toEqual(["w1"]);
    workers.close();
  });

  test("that was removed is anyone's again; a stream that was on its way is closed", async () => {
    const workers = registry();
    const admitted = workers.admit(REGISTRATION, await comes(workers, "a"));
    workers.remove("w1");
    const [plane, worker] = framePair();
    admitted.connected(plane);
    expect(await endOf(worker)).toMatchObject({ reason: "WORKER_REMOVED" });
    const other = await comes(workers, "b");
    expect(refusal(() => workers.admit(REGISTRATION, other))).toBe("admitted");
    expect(refusal(() => workers.remove("w2"))).toBe("not_found WORKER_NOT_FOUND");
    workers.close();
  });

  test("has to be one that its token is for", async () => {
    const identity = { ...SHARED_IDENTITY, workerId: "gpu-*" };
    const workers = new WorkerRegistry({
      authenticate: (token) => (token === "one" ? { ...identity, workerId: "w1" } : identity),
      version: "test",
      log: silentLog,
    });
    const [many, one] = [await comes(workers, "many"), await comes(workers, "one")];
    const as = (workerId: string) => ({ ...REGISTRATION, workerId });
    const refused = "permission_denied ID_NOT_ALLOWED";
    expect(refusal(() => workers.admit(as("w1"), many))).toBe(refused);
    expect(refusal(() => workers.admit(as("gpu-7"), many))).toBe("admitted");
    expect(refusal(() => workers.admit(as("w1"), one))).toBe("admitted");
    expect(refusal(() => workers.admit(as("w12"), one))).toBe(refused);
    workers.close();
  });
});

/** What a worker's stream ended with. */
async function endOf(worker: PairEnd): Promise<unknown> {
  return await worker.frames[Symbol.asyncIterator]()
    .next()
    .then(
      () => null,
      (thrown: unknown) => thrown,
    );
}

test("a token that is revoked while its worker is let in lets nobody in", async () => {
  const revoked = new Set<string>();
  const workers = new WorkerRegistry({
    authenticate: () => ({ ...SHARED_IDENTITY, tokenId: "t" }),
    isRevoked: (id) => revoked.has(id),
    version: "test",
    log: silentLog,
  });
  const admitted = workers.admit(REGISTRATION, await comes(workers, "a"));
  revoked.add("t");
  const [plane, worker] = framePair();
  admitted.connected(plane);
  expect(await endOf(worker)).toMatchObject({ reason: "TOKEN_REVOKED" });
  expect(workers.connected).toEqual([]);
  workers.close();
});

test("a claim's ttl is two heartbeats at least, or none", () => {
  const workers = registry();
  const ttl = (claimTtlSeconds?: number) =>
    workers.withTtl({
      taskId: "t",
      epoch: 1,
      ...(claimTtlSeconds === undefined ? {} : { claimTtlSeconds }),
    }).claimTtlSeconds;
  expect([ttl(), ttl(0), ttl(5), ttl(60), ttl(61)]).toEqual([undefined, 0, 60, 60, 61]);
  workers.close();
});

test("of more workers than are remembered, the one that is away longest is forgotten", async () => {
  const clock = { now: () => now, monotonicMs: () => 0 };
  let now = 1000;
  const workers = new WorkerRegistry({
    authenticate: () => SHARED_IDENTITY,
    version: "test",
    log: silentLog,
    clock,
  });
  const [token, other] = [await comes(workers, "a"), await comes(workers, "b")];
  const admit = (workerId: string, from = token) =>
    workers.admit({ ...REGISTRATION, workerId }, from);
  admit("stays").connected(framePair()[0]);
  for (let at = 1; at < WORKERS_MAX; at += 1) {
    now += 1;
    admit(`w${at}`);
  }
  expect(refusal(() => admit("w1", other))).toBe(TAKEN);
  admit("new");
  expect(refusal(() => admit("w2", other))).toBe(TAKEN);
  expect(refusal(() => admit("w1", other))).toBe("admitted");
  expect(workers.connected).toEqual(["stays"]);
  expect(workers.views().some(({ id }) => id === "new")).toBe(true);
  now += LOST_LISTED_MS + 1;
  expect(workers.views().map(({ id, status }) => [id, status])).toEqual([["stays", "idle"]]);
  workers.close();
});

test("where all are connected, no other is let in", async () => {
  const workers = registry();
  const token = await comes(workers, "a");
  for (let at = 0; at < WORKERS_MAX; at += 1) {
    workers.admit({ ...REGISTRATION, workerId: `w${at}` }, token).connected(framePair()[0]);
  }
  const one = { ...REGISTRATION, workerId: "one-more" };
  expect(refusal(() => workers.admit(one, token))).toBe("resource_exhausted TOO_MANY_WORKERS");
  workers.close();
});

test("in each profile a silent stream is closed before its claims run out", () => {
  for (const { heartbeatSeconds, silenceMs, claimTtlSeconds } of [LIVENESS, FAST_LIVENESS]) {
    expect(silenceMs).toBe(heartbeatSeconds * 2500);
    expect(silenceMs).toBeLessThan(claimTtlSeconds * 1000 + TTL_MARGIN_MS);
  }
});
