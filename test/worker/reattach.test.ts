// Claims over lost streams, over TCP: a proxy cuts, freezes and refuses; nothing is lost or doubled.

import { afterEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import type { Liveness } from "../../src/control-plane/liveness.ts";
import { startRemoteExec } from "../../src/control-plane/remote-exec.ts";
import { RemoteFiles } from "../../src/control-plane/remote-files.ts";
import type { Exec } from "../../src/provider/contract.ts";
import { refusal, until } from "./ground.ts";
import { type Plane, startPlane, TOKEN } from "./process.ts";
import { type CuttingProxy, startProxy } from "./proxy.ts";

const FIXTURE = join(import.meta.dir, "../fixtures/reattach-worker.ts");
const MIB = 1024 * 1024;
const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

interface There {
  readonly plane: Plane;
  readonly proxy: CuttingProxy;
  readonly directory: string;
  readonly link: ClaimLink;
  readonly child: Bun.Subprocess;
}

async function claimed(
  liveness: Partial<Liveness> = {},
  { ttlSeconds = 0, ...rest }: { ttlSeconds?: number; methods?: readonly string[] } = {},
): Promise<There> {
  const directory = mkdtempSync(join(tmpdir(), "cprg-worker-"));
  undo.push(() => rmSync(directory, { recursive: true, force: true }));
  const plane = await startPlane({ liveness });
  undo.push(() => plane.close());
  const proxy = await startProxy(plane.port);
  undo.push(() => proxy.close());
  const given = { port: proxy.port, token: TOKEN, directory, ...rest };
  const child = Bun.spawn([process.execPath, FIXTURE, JSON.stringify(given)], {
    stdout: "ignore",
    stderr: "inherit",
    stdin: "ignore",
  });
  undo.push(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  const link = await plane.registry.claim({ taskId: "t1", epoch: 1, claimTtlSeconds: ttlSeconds });
  return { plane, proxy, directory, link, child };
}

function sh(link: ClaimLink, script: string, rest: object = {}): Promise<Exec> {
  const variables = { PATH: "/usr/bin:/bin" };
  return startRemoteExec(link, {
    executable: "sh",
    arguments: ["-c", script],
    variables,
    ...rest,
  });
}

async function read(exec: Exec, each?: (bytes: number) => void): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const notice of exec.notices) {
    if (notice.type !== "output") continue;
    parts.push(notice.bytes);
    each?.(notice.bytes.length);
  }
  return Buffer.concat(parts);
}

const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

test("cuts at random bytes of 10 MB of output lose no byte and repeat none", async () => {
  const { proxy, directory, link } = await claimed();
  const content = crypto.getRandomValues(Buffer.alloc(64 * 1024));
  const all = Buffer.concat(Array.from({ length: 160 }, (_, at) => content.map((b) => b ^ at)));
  writeFileSync(join(directory, "all"), all);
  const exec = await sh(link, `echo x >> ${directory}/started; cat ${directory}/all`);
  const next = (): void => proxy.cutAfter(1 + Math.floor(Math.random() * 1.2 * MIB));
  next();
  let seen = proxy.connections;
  const got = await read(exec, () => {
    if (proxy.connections === seen) return;
    seen = proxy.connections;
    next();
  });
  expect(proxy.connections).toBeGreaterThan(5);
  expect(got.length).toBe(all.length);
  expect(digest(got)).toBe(digest(all));
  expect(await exec.outcome).toMatchObject({ reason: "exit", exitCode: 0 });
  expect(readFileSync(join(directory, "started"), "utf8")).toBe("x\n");
  await link.release();
}, 60_000);

test("small items and many cuts: what was consumed and not yet granted holds nothing back", async () => {
  const { proxy, link } = await claimed();
  const exec = await sh(
    link,
    "i=0; while [ $i -lt 60 ]; do head -c 50000 /dev/zero; i=$((i+1)); done",
  );
  let total = 0;
  let next = 40_000;
  const got = await read(exec, (bytes) => {
    total += bytes;
    if (total < next) return;
    next = total + 40_000;
    proxy.cut();
  });
  expect(got.length).toBe(3_000_000);
  await exec.outcome;
}, 60_000);

test("an exec.Start that is cut off before its answer starts once", async () => {
  const { proxy, directory, link } = await claimed();
  for (const where of ["before it arrives", "on its way back"]) {
    const mark = join(directory, where.replaceAll(" ", "-"));
    if (where === "before it arrives")
      proxy.onDown((bytes) => Buffer.from(bytes).includes("exec.Start") && cutOnce());
    else proxy.cutAfter(1);
    let wasCut = false;
    const cutOnce = (): boolean => {
      if (wasCut) return false;
      wasCut = true;
      return true;
    };
    const before = proxy.connections;
    const exec = await sh(link, `echo x >> ${mark}; echo out`);
    expect((await read(exec)).toString()).toBe("out\n");
    expect((await exec.outcome).exitCode).toBe(0);
    expect(proxy.connections).toBeGreaterThan(before);
    expect(readFileSync(mark, "utf8")).toBe("x\n");
  }
});

test("input goes on where it was cut off", async () => {
  const { proxy, link } = await claimed();
  const exec = await sh(link, "cat", { stdin: "pipe" });
  const reading = read(exec);
  const parts = Array.from({ length: 40 }, (_, at) => Buffer.alloc(20_000, at));
  for (const [at, part] of parts.entries()) {
    const written = exec.write(part);
    if (at % 4 === 0) proxy.cut();
    await written;
  }
  const closed = exec.closeInput();
  proxy.cut();
  await closed;
  expect(digest(await reading)).toBe(digest(Buffer.concat(parts)));
  await exec.outcome;
}, 30_000);

test("in the grace calls wait, and a kill is carried out when the worker is back", async () => {
  const { proxy, directory, link, plane } = await claimed();
  const exec = await sh(link, "sleep 1000");
  proxy.refuse(true);
  proxy.cut();
  await until(() => plane.registry.connected.length === 0);
  const put = new RemoteFiles(link).putFile("f", Buffer.from("late"));
  exec.kill("user");
  expect(existsSync(join(directory, "root/f"))).toBe(false);
  proxy.refuse(false);
  await put;
  expect(readFileSync(join(directory, "root/f"), "utf8")).toBe("late");
  expect(await exec.outcome).toMatchObject({ reason: "user", signal: "SIGKILL" });
  expect(existsSync(`/proc/${exec.pid}`)).toBe(false);
});

test("a claim that is released in the grace is dropped by the worker", async () => {
  const { proxy, link, plane } = await claimed();
  const exec = await sh(link, "sleep 1000");
  proxy.refuse(true);
  proxy.cut();
  await until(() => plane.registry.connected.length === 0);
  const released = link.release();
  proxy.refuse(false);
  await released;
  expect(existsSync(`/proc/${exec.pid}`)).toBe(false);
  expect((await exec.outcome).reason).toBe("worker_lost");
  const next = await plane.registry.claim({ taskId: "t2", epoch: 1 });
  expect((await read(await sh(next, "echo next"))).toString()).toBe("next\n");
});

test("the grace over, the worker is lost, and ends the claim when it is back", async () => {
  const { proxy, link, plane } = await claimed({ graceMs: 200 });
  const exec = await sh(link, "sleep 1000");
  proxy.refuse(true);
  proxy.cut();
  expect((await exec.outcome).reason).toBe("worker_lost");
  expect(await refusal(link.attached())).toBe("unavailable WORKER_LOST");
  expect(plane.registry.claimCount).toBe(0);
  expect(existsSync(`/proc/${exec.pid}`)).toBe(true);
  proxy.refuse(false);
  await until(() => !existsSync(`/proc/${exec.pid}`));
  const next = await plane.registry.claim({ taskId: "t1", epoch: 2 });
  expect((await read(await sh(next, "echo next"))).toString()).toBe("next\n");
});

test("a worker that cannot attach loses its claims with the stream", async () => {
  const { proxy, link } = await claimed(
    { graceMs: 60_000 },
    { methods: ["/internal/credit", "heartbeat.ack", "worker.secret"] },
  );
  const exec = await sh(link, "sleep 1000");
  proxy.cut();
  expect((await exec.outcome).reason).toBe("worker_lost");
});

test("a silent stream is closed, and its claims are lost without a grace", async () => {
  const { proxy, link } = await claimed({ silenceMs: 1500, graceMs: 60_000 });
  const exec = await sh(link, "sleep 1000");
  proxy.freeze();
  expect((await exec.outcome).reason).toBe("worker_lost");
  expect(await refusal(link.attached())).toBe("unavailable WORKER_LOST");
  proxy.thaw();
  await until(() => !existsSync(`/proc/${exec.pid}`));
});

test("the worker ends a claim at its ttl, before the control plane gives it up", async () => {
  const { proxy, link } = await claimed({ silenceMs: 60_000, graceMs: 60_000 }, { ttlSeconds: 3 });
  const exec = await sh(link, "sleep 1000");
  // Heartbeats renew it well beyond its ttl.
  for (const untilMs = performance.now() + 9000; performance.now() < untilMs; ) {
    expect([link.over.aborted, existsSync(`/proc/${exec.pid}`)]).toEqual([false, true]);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  proxy.refuse(true);
  proxy.cut();
  await until(() => !existsSync(`/proc/${exec.pid}`));
  expect(link.over.aborted).toBe(false);
  expect((await exec.outcome).reason).toBe("worker_lost");
}, 30_000);
