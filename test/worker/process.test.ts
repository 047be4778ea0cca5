// `cprg worker` as a process: how it connects, what it hides, when it stops and with which code.

import { afterEach, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EXEC_START, WORKER_DRAIN } from "../../src/bridge/methods.ts";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { until } from "./ground.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  TOKEN,
  type WorkerProcess,
  type WorkerProcessOptions,
} from "./process.ts";

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function plane(options?: Parameters<typeof startPlane>[0]): Promise<Plane> {
  const started = await startPlane(options);
  undo.push(() => started.close());
  return started;
}

function worker(port: number, options?: WorkerProcessOptions): WorkerProcess {
  const started = startWorkerProcess(port, options);
  undo.push(() => started.end());
  return started;
}

function temporary(): string {
  const path = mkdtempSync(join(tmpdir(), "cprg-worker-"));
  undo.push(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const claimOf = (there: Plane, taskId = "t1"): Promise<ClaimLink> =>
  there.registry.claim({ taskId, epoch: 1, env: { OF_CLAIM: "secret-of-the-claim" } });

async function sh(claimed: ClaimLink, script: string): Promise<string> {
  const lease = new WorkerLease(claimed, {});
  return (await lease.invoke({ executable: "sh", arguments: ["-c", script] })).stdout;
}

test("the token is in neither arguments nor environment, and no exec finds it", async () => {
  const there = await plane();
  for (const options of [
    { words: ["--token", TOKEN] },
    { words: [`--token=${TOKEN}`] },
    { words: [], env: { CPRG_WORKER_TOKEN: TOKEN } },
    { words: ["--token", "-"], stdin: `${TOKEN}\n` },
  ]) {
    const { pid, end } = worker(there.port, options);
    const claimed = await claimOf(there);
    for (const file of ["cmdline", "environ"]) {
      expect(readFileSync(`/proc/${pid}/${file}`, "latin1")).not.toContain(TOKEN);
    }
    const found = await sh(
      claimed,
      "env; cat /proc/$PPID/environ /proc/$PPID/cmdline; ls -l /proc/self/fd",
    );
    expect(found).toContain("OF_CLAIM=secret-of-the-claim");
    expect(found).not.toContain(TOKEN);
    expect(await sh(claimed, "env")).not.toContain("CPRG_DATA_DIR");
    // Not dumpable: its files in /proc are root's.
    expect(statSync(`/proc/${pid}/environ`).uid).toBe(0);
    await claimed.release();
    await end();
    await until(() => there.registry.connected.length === 0);
  }
});

test("a worker listens on nothing", async () => {
  const there = await plane();
  const { pid } = worker(there.port);
  await until(() => there.registry.connected.length === 1);
  const inodes = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/${pid}/fd/${fd}`);
      return /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? [];
    } catch {
      return [];
    }
  });
  const LISTEN = "0A";
  const listening = ["tcp", "tcp6"].flatMap((name) =>
    readFileSync(`/proc/net/${name}`, "utf8")
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[3] === LISTEN && inodes.includes(fields[9] ?? "")),
  );
  expect(inodes.length).toBeGreaterThan(0);
  expect(listening).toEqual([]);
});

test("id and secret are kept, private, and a stranger with the id is refused", async () => {
  const there = await plane();
  const home = temporary();
  const first = worker(there.port, { directory: home });
  await until(() => there.registry.connected.length === 1);
  const [id = ""] = there.registry.connected;
  expect(readFileSync(join(first.stateDir, "worker-id"), "utf8").trim()).toBe(id);
  await until(() => existsSync(join(first.stateDir, "worker-secret")));
  for (const name of ["worker-id", "worker-secret"]) {
    expect(statSync(join(first.stateDir, name)).mode & 0o777).toBe(0o600);
  }
  // The id is its own for good once it has shown its secret.
  first.kill("SIGKILL");
  await first.exited;
  await until(() => there.registry.connected.length === 0);
  worker(there.port, { directory: home });
  await until(() => there.registry.connected.length === 1);
  const directory = temporary();
  const state = join(directory, "state");
  mkdirSync(state, { mode: 0o700 });
  writeFileSync(join(state, "worker-id"), `${id}\n`, { mode: 0o600 });
  const stranger = worker(there.port, { directory });
  expect(await stranger.exited).toBe(3);
  expect(await stranger.said).toContain("refused");
  expect(there.registry.connected).toEqual([id]);
});

test("the rightful owner replaces the stream, and the other process stops with 3", async () => {
  const there = await plane();
  const directory = temporary();
  const first = worker(there.port, { directory });
  await until(() => existsSync(join(first.stateDir, "worker-secret")));
  worker(there.port, { directory });
  expect(await first.exited).toBe(3);
  await until(() => there.registry.connected.length === 1);
});

test("a refused token stops it with 3, wrong use with 2", async () => {
  const there = await plane();
  expect(await worker(there.port, { words: ["--token", "wrong"] }).exited).toBe(3);
  expect(await worker(there.port, { words: [] }).exited).toBe(2);
  expect(await worker(there.port, { words: ["--token", "x", "--label", "nothing"] }).exited).toBe(
    2,
  );
  expect(
    await worker(there.port, { words: ["--token", "x", "--pass-env", "CPRG_KEY"] }).exited,
  ).toBe(2);
});

test("--once: one claim, in the directory itself, then exit 0", async () => {
  const there = await plane();
  const one = worker(there.port, { words: ["--token", TOKEN, "--once"] });
  const claimed = await claimOf(there);
  expect(claimed.granted.root).toBe(one.root);
  await sh(claimed, "echo kept > file");
  await claimed.release();
  expect(await one.exited).toBe(0);
  expect(readFileSync(join(one.root, "file"), "utf8")).toBe("kept\n");
});

test("claims one after another see nothing of each other", async () => {
  const there = await plane();
  const { root } = worker(there.port);
  const first = await claimOf(there, "a");
  await sh(first, "echo left > file; echo left > $HOME/file");
  await first.release();
  expect(readdirSync(root)).toEqual([]);
  expect(existsSync(first.granted.home)).toBe(false);
  const second = await claimOf(there, "b");
  expect(await sh(second, "ls -A . $HOME")).not.toContain("file");
  await second.release();
});

test("SIGTERM finishes the claim and takes no other; idle it ends at once", async () => {
  const there = await plane();
  const busy = worker(there.port);
  const claimed = await claimOf(there);
  busy.kill("SIGTERM");
  const refused = claimed.mux.call(WORKER_DRAIN, {});
  expect((await refused).claims).toEqual([claimed.claim]);
  expect(await sh(claimed, "echo still")).toBe("still\n");
  const [code] = await Promise.all([busy.exited, claimed.release()]);
  expect(code).toBe(0);
  const idle = worker(there.port);
  await until(() => there.registry.connected.length === 1);
  idle.kill("SIGTERM");
  expect(await idle.exited).toBe(0);
});

test("a second SIGTERM kills what runs", async () => {
  const there = await plane();
  const one = worker(there.port);
  const claimed = await claimOf(there);
  const call = claimed.mux.stream(EXEC_START, { claim: claimed.claim, argv: ["sleep", "1000"] });
  const items = call[Symbol.asyncIterator]();
  const pid = (await items.next()).value?.started?.pid ?? 0;
  one.kill("SIGTERM");
  // Told so, it refuses another claim: the first signal has been taken.
  await claimed.mux.call(WORKER_DRAIN, {});
  one.kill("SIGTERM");
  expect(await one.exited).toBe(1);
  expect(existsSync(`/proc/${pid}`)).toBe(false);
  await items.return?.();
});

test("a lost stream is dialled again, and what the control plane forgot is ended", async () => {
  const there = await plane();
  const { root } = worker(there.port);
  const claimed = await claimOf(there);
  const call = claimed.mux.stream(EXEC_START, { claim: claimed.claim, argv: ["sleep", "1000"] });
  const items = call[Symbol.asyncIterator]();
  const pid = (await items.next()).value?.started?.pid ?? 0;
  await there.close();
  expect(existsSync(`/proc/${pid}`)).toBe(true);
  const again = await plane({ port: there.port });
  await until(() => again.registry.connected.length === 1);
  await until(() => !existsSync(`/proc/${pid}`));
  await until(() => readdirSync(root).length === 0);
  const next = await claimOf(again, "t2");
  expect(await sh(next, "echo on")).toBe("on\n");
}, 30_000);

test("over TLS, with the authority that it was given and no other", async () => {
  const folder = temporary();
  const files = makeCertificate(folder, "control");
  const read = (path: string): string => readFileSync(path, "utf8");
  const there = await plane({ tls: { key: read(files.key), certificate: read(files.cert) } });
  worker(there.port, { words: ["--token", TOKEN, "--tls-ca", files.cert] });
  const claimed = await claimOf(there);
  expect(await sh(claimed, "echo secret")).toBe("secret\n");
  await claimed.release();
});

test("a state directory that others may write to is refused", async () => {
  const there = await plane();
  const directory = temporary();
  mkdirSync(join(directory, "state"));
  chmodSync(join(directory, "state"), 0o777);
  const one = worker(there.port, { directory });
  expect(await one.exited).toBe(2);
  expect(await one.said).toContain("other users may write to it");
});
