import { expect, test } from "bun:test";
import { type Log, silentLog } from "../../src/core/log.ts";
import { WAITING_BYTES_MAX, WAITING_REQUESTS_MAX } from "../../src/store/protocol.ts";
import { WorkerLink } from "../../src/store/worker-link.ts";
import { failure } from "./samples.ts";

function link(log: Log = silentLog): WorkerLink {
  const url = new URL("./fixtures/dying-worker.ts", import.meta.url);
  return new WorkerLink(new Worker(url), log);
}

const ask = (to: WorkerLink, inputBytes = 0) => to.call("get", { id: "x" }, { inputBytes });

test.each(["throws", "rejects", "ends"])(
  "a worker that %s fails what waits and what comes",
  async (way) => {
    const logged: unknown[] = [];
    const dying = link({ ...silentLog, error: (_, fields) => logged.push(fields) });
    await dying.open(way);
    const first = failure(ask(dying));
    await Promise.resolve();
    const errors = await Promise.all([first, failure(ask(dying)), failure(ask(dying))]);
    for (const error of [...errors, await failure(ask(dying))]) {
      expect([error.code, error.reason]).toEqual(["unavailable", "STORE_DIED"]);
    }
    expect(logged).toHaveLength(1);
    expect((await dying.failed).reason).toBe("STORE_DIED");
    await dying.close();
  },
);

test("a worker that dies while it opens or closes fails that step", async () => {
  expect(await failure(link().open("never opens"))).toMatchObject({ reason: "STORE_DIED" });
  const dying = link();
  await dying.open("echoes");
  expect(await ask(dying)).toBe("get" as never);
  expect(await failure(dying.close())).toMatchObject({ reason: "STORE_DIED" });
});

test("so many requests wait and no more", async () => {
  const full = link();
  await full.open("silent");
  const calls = Array.from({ length: WAITING_REQUESTS_MAX }, () => failure(ask(full)));
  const refused = await failure(ask(full));
  expect([refused.code, refused.reason]).toEqual(["resource_exhausted", "STORE_OVERLOADED"]);
  expect(refused.retryable).toBe(true);
  full.fail("the test is over");
  expect((await Promise.all(calls)).every(({ reason }) => reason === "STORE_DIED")).toBe(true);
});

test("so many bytes wait and no more, but one request always may", async () => {
  const full = link();
  await full.open("silent");
  const outstanding = failure(ask(full, WAITING_BYTES_MAX * 2));
  await Promise.resolve();
  const waiting = failure(ask(full, WAITING_BYTES_MAX));
  expect(await failure(ask(full, 1))).toMatchObject({ reason: "STORE_OVERLOADED" });
  full.fail("the test is over");
  const ends = await Promise.all([outstanding, waiting]);
  expect(ends.map(({ reason }) => reason)).toEqual(["STORE_DIED", "STORE_DIED"]);
});

test("bytes that were answered make room for others", async () => {
  const echoing = link();
  await echoing.open("echoes");
  for (let round = 0; round < 3; round += 1) {
    const half = WAITING_BYTES_MAX / 2;
    await Promise.all([ask(echoing, half), ask(echoing, half)]);
  }
  echoing.fail("the test is over");
});

test("an input that cannot be sent fails its batch, and the next one goes", async () => {
  const echoing = link();
  await echoing.open("echoes");
  const bad = { id: (() => undefined) as never };
  expect(await failure(echoing.call("get", bad))).toMatchObject({ reason: "STORE_INPUT" });
  expect(await ask(echoing)).toBe("get" as never);
  echoing.fail("the test is over");
});
