// Whom an id belongs to, and the profiles of waiting for a worker.

import { describe, expect, test } from "bun:test";
import type { Registration } from "../../../src/bridge/metadata.ts";
import { WORKER_SECRET } from "../../../src/bridge/methods.ts";
import { FAST_LIVENESS, LIVENESS, TTL_MARGIN_MS } from "../../../src/control-plane/liveness.ts";
import { WorkerRegistry } from "../../../src/control-plane/worker-registry.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { silentLog } from "../../../src/core/log.ts";
import { framePair } from "../../bridge/frame-pair.ts";

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

function registry(): WorkerRegistry {
  return new WorkerRegistry({ authenticate: () => undefined, version: "test", log: silentLog });
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

describe("an id", () => {
  test("without a secret belongs to the token that it came with", () => {
    const workers = registry();
    const [own, other] = [workers.authenticate("a"), workers.authenticate("b")];
    workers.admit(REGISTRATION, own).connected(framePair()[0]);
    expect(refusal(() => workers.admit(REGISTRATION, other))).toBe("permission_denied ID_TAKEN");
    expect(refusal(() => workers.admit(REGISTRATION, own))).toBe("admitted");
    workers.close();
  });

  test("with a secret belongs to whoever shows it, whatever the token", () => {
    const workers = registry();
    const token = workers.authenticate("a");
    const first = { ...REGISTRATION, methods: [WORKER_SECRET] };
    const admitted = workers.admit(first, token);
    const { secret } = admitted.control;
    admitted.connected(framePair()[0]);
    const taken = "permission_denied ID_TAKEN";
    expect(refusal(() => workers.admit(first, token))).toBe(taken);
    expect(refusal(() => workers.admit({ ...first, secret: "wrong" }, token))).toBe(taken);
    const again = workers.admit({ ...first, secret }, workers.authenticate("b"));
    expect(again.control.secret).toBeUndefined();
    workers.close();
  });

  test("that comes twice at once is the first one's", async () => {
    const workers = registry();
    const token = workers.authenticate("a");
    const [first, second] = [REGISTRATION, REGISTRATION].map((one) => workers.admit(one, token));
    first?.connected(framePair()[0]);
    const [plane, stranger] = framePair();
    second?.connected(plane);
    const read = stranger.frames[Symbol.asyncIterator]().next();
    const error = await read.then(
      () => null,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: "permission_denied", reason: "ID_TAKEN" });
    expect(workers.connected).toEqual(["w1"]);
    workers.close();
  });

  test("whose first stream ended without a word may never have got its secret: it is free", async () => {
    const workers = registry();
    const token = workers.authenticate("a");
    const registration = { ...REGISTRATION, methods: [WORKER_SECRET] };
    const [plane, worker] = framePair();
    workers.admit(registration, token).connected(plane);
    worker.cut();
    while (workers.connected.length > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(workers.admit(registration, token).control.secret).toBeString();
    workers.close();
  });
});

test("in each profile a silent stream is closed before its claims run out", () => {
  for (const { heartbeatSeconds, silenceMs, claimTtlSeconds } of [LIVENESS, FAST_LIVENESS]) {
    expect(silenceMs).toBe(heartbeatSeconds * 2500);
    expect(silenceMs).toBeLessThan(claimTtlSeconds * 1000 + TTL_MARGIN_MS);
  }
});
