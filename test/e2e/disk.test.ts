// A server whose disk is full or read-only: clear refusals, ends with a reason, then normal again.

import { expect } from "bun:test";
import {
  closeSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, type Home, makeHome, readText, start } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";
import { mountSmallDisk, type SmallDisk } from "./small-disk.ts";
import { until } from "./until.ts";

const { test } = requireHost({
  root: true,
  cgroup: true,
  programs: ["unshare", "nsenter", "mount"],
});

const key = "a-key-for-a-small-disk-0123456789";
const quick = { language: "python", code: "print(6*7)" };
/** Writes for as long as it is let. */
const chatty = {
  argv: ["/bin/sh", "-c", "while :; do head -c 8000 /dev/urandom | base64; sleep 0.02; done"],
  limits: { wall_seconds: 120, output_kb: 65_536 },
};

/** Does not end before its server has no room for what it writes. */
const loud = {
  argv: ["/bin/sh", "-c", "while :; do head -c 100000 /dev/urandom | base64; done"],
  limits: { wall_seconds: 120, output_kb: 65_536 },
};

async function json(response: Response): Promise<Record<string, unknown>> {
  return (await response.json()) as Record<string, unknown>;
}

async function post(server: Serving): Promise<Response> {
  return await server.request("/v1/jobs", { method: "POST", body: JSON.stringify(quick) });
}

async function result(server: Serving, id: string): Promise<Record<string, unknown>> {
  return await json(await server.request(`/v1/jobs/${id}/result?wait_seconds=60`));
}

/** The sealed log of a job holds. */
async function verify(
  server: Serving,
  { id, disk, home }: { id: string; disk: SmallDisk; home: Home },
): Promise<void> {
  const log = await fetch(`${server.url}/v1/jobs/${id}/replay`, {
    headers: { Authorization: `Bearer ${key}`, Accept: "application/x-ndjson" },
  });
  const verified = await call(["verify", "-", "--key", disk.path("signing-key.pub.pem")], {
    env: home.env,
    stdin: await log.text(),
  });
  expect(verified).toMatchObject({ code: 0 });
}

/** A start that finds nothing to write serves, and may find room in the database's own log. */
async function startOnFullDisk(
  home: Home,
  options: NonNullable<Parameters<typeof serve>[1]>,
): Promise<void> {
  const server = await serve(home, options).catch((error: unknown) => {
    expect(String(error)).toContain("the disk is full");
    return null;
  });
  if (server === null) return;
  expect([201, 507]).toContain((await post(server)).status);
  await server.stop("SIGKILL");
}

/** Takes every byte that is left. */
function fill(disk: SmallDisk): void {
  const file = openSync(disk.path("ballast"), "a");
  try {
    for (const size of [65_536, 4096]) {
      try {
        for (;;) writeSync(file, new Uint8Array(size));
      } catch {}
    }
  } finally {
    closeSync(file);
  }
}

test("a full disk: new jobs 507, the running one ends with its reason, and then all is well again", async () => {
  using home = makeHome();
  await using disk = await mountSmallDisk(home, 12);
  // Nothing goes by age: a sweep would find a few pages to give back, and room for a job with them.
  const env = { CPRG_API_KEYS: key, CPRG_RETENTION_HOURS: "0" };
  await using server = await serve(home, { shell: disk.shell, env });
  const before = await server.submit(quick);
  expect(await result(server, before)).toMatchObject({ status: "succeeded", stdout: "42\n" });
  const running = await server.submit(chatty);
  await until(
    async () =>
      (await json(await server.request(`/v1/jobs/${running}`)))["status"] === "running"
        ? true
        : null,
    { what: "the job runs" },
  );
  fill(disk);

  expect(await result(server, running)).toMatchObject({ status: "error", reason: "disk_full" });
  const refused = await until(
    async () => {
      const response = await post(server);
      return response.status === 201 ? null : response;
    },
    { what: "a refusal" },
  );
  expect(refused.status).toBe(507);
  expect(await json(refused)).toMatchObject({
    status: 507,
    title: "Insufficient Storage",
    code: "resource_exhausted",
    reason: "DISK_FULL",
    hint: expect.stringContaining("Free space"),
    request_id: expect.any(String),
  });
  const health = await server.request("/healthz");
  expect([health.status, (await json(health))["reason"]]).toEqual([503, "DISK_FULL"]);
  // What is there can still be read.
  expect(await result(server, before)).toMatchObject({ stdout: "42\n" });

  rmSync(disk.path("ballast"));
  const { bsize, bavail } = statfsSync(disk.path("."));
  expect(bsize * bavail).toBeGreaterThan(1024 * 1024);
  expect((await server.request("/healthz")).status).toBe(200);
  const after = await server.submit(quick);
  expect(await result(server, after)).toMatchObject({ status: "succeeded", stdout: "42\n" });
  expect(await server.stop()).toBe(0);

  await using again = await serve(home, { shell: disk.shell, env: { CPRG_API_KEYS: key } });
  for (const id of [before, running, after]) await verify(again, { id, disk, home });
  expect(await again.stop()).toBe(0);
}, 120_000);

for (const { what, jobs, mib } of [
  { what: "one long log", jobs: 1, mib: 8 },
  { what: "several logs, and files beside them,", jobs: 6, mib: 1 },
]) {
  test(`a disk that is full of ${what} past its retention is freed by the server itself`, async () => {
    using home = makeHome();
    await using disk = await mountSmallDisk(home, 24);
    await using server = await serve(home, {
      shell: disk.shell,
      env: { CPRG_API_KEYS: key, CPRG_SWEEP_INTERVAL_SECS: "86400" },
    });
    const program = `mkdir -p out; head -c ${mib}M /dev/urandom | base64; head -c 100000 /dev/urandom > out/a`;
    const old: string[] = [];
    for (let index = 0; index < jobs; index += 1) {
      const limits = { output_kb: 65_536, wall_seconds: 120 };
      const id = await server.submit({ argv: ["/bin/sh", "-c", program], limits });
      const { status, stdout } = await result(server, id);
      expect([status, String(stdout).length > mib * 1024 ** 2]).toEqual(["succeeded", true]);
      old.push(id);
    }
    const kept = await server.submit(quick);
    expect(await result(server, kept)).toMatchObject({ status: "succeeded" });
    await age(disk, { home, ids: old });
    const running = await server.submit(loud);
    fill(disk);
    const ballast = statSync(disk.path("ballast")).size;
    expect(await result(server, running)).toMatchObject({ status: "error", reason: "disk_full" });
    const statuses = new Set<number>();
    const after = await until(
      async () => {
        const response = await post(server);
        statuses.add(response.status);
        return response.status === 201 ? String((await json(response))["job_id"]) : null;
      },
      { what: "a job is taken again", state: () => [...statuses] },
    );
    expect(await result(server, after)).toMatchObject({ status: "succeeded", stdout: "42\n" });
    for (const id of old) {
      await until(
        async () => ((await server.request(`/v1/jobs/${id}`)).status === 404 ? true : null),
        { what: "what is past its retention is gone" },
      );
    }
    expect(await result(server, kept)).toMatchObject({ stdout: "42\n" });
    expect((await server.request("/healthz")).status).toBe(200);
    expect(statSync(disk.path("ballast")).size).toBe(ballast);
    await verify(server, { id: after, disk, home });
    expect(await server.stop()).toBe(0);
    const log = await server.err.rest();
    expect(log.split("the disk is full: removing what is past its retention now")).toHaveLength(2);
    expect(log).toContain('"message":"pruned"');
  }, 120_000);
}

/** Has jobs ended two retentions ago, behind the back of the server. */
async function age(disk: SmallDisk, { home, ids }: { home: Home; ids: readonly string[] }) {
  const script = `
    import { Database } from "bun:sqlite";
    const [path, ...ids] = process.argv.slice(1);
    using db = new Database(path);
    db.run("PRAGMA busy_timeout = 5000");
    const age = db.prepare("UPDATE jobs SET finished_at = finished_at - 1209600000 WHERE id = ?");
    for (const id of ids) if (age.run(id).changes !== 1) throw new Error(id);`;
  const words = [process.execPath, "-e", script, join(home.dataDir, "cprg.db"), ...ids];
  const child = Bun.spawn([...disk.shell, ...words], { stderr: "inherit" });
  expect(await child.exited).toBe(0);
}

test("a full disk and deaths: clear refusals, and with room again every log is whole", async () => {
  using home = makeHome();
  await using disk = await mountSmallDisk(home, 12);
  const options = { shell: disk.shell, env: { CPRG_API_KEYS: key } };
  const ids: string[] = [];
  for (const afterMs of [0, 50, 300]) {
    await using server = await serve(home, options);
    const running = await server.submit(chatty);
    ids.push(running, await server.submit(quick));
    await until(
      async () => {
        const replay = await json(await server.request(`/v1/jobs/${running}/replay`));
        return (replay["events"] as unknown[]).length > 5 ? true : null;
      },
      { what: "output is there" },
    );
    fill(disk);
    await Bun.sleep(afterMs);
    await server.stop("SIGKILL");
    fill(disk);
    await startOnFullDisk(home, options);
    rmSync(disk.path("ballast"));
  }
  await using last = await serve(home, options);
  for (const id of ids) {
    const { status, reason } = await result(last, id);
    expect(["succeeded/exit", "error/disk_full", "error/interrupted"]).toContain(
      `${status}/${reason}`,
    );
    await verify(last, { id, disk, home });
  }
  expect(await last.stop()).toBe(0);
}, 120_000);

test("a disk that was full at the first start leaves nothing in the way of the next", async () => {
  using home = makeHome();
  await using disk = await mountSmallDisk(home, 4);
  for (const pages of [0, 1, 2, 3]) {
    fill(disk);
    truncateSync(disk.path("ballast"), statSync(disk.path("ballast")).size - pages * 4096);
    const refused = await call(["serve", "--addr", "127.0.0.1:0"], {
      env: home.env,
      shell: disk.shell,
    });
    expect(refused).toMatchObject({ code: 1, out: "" });
    expect(refused.err).toContain("the disk is full");
    const odd = readdirSync(disk.path(".")).filter((name) => /\.[0-9a-f]{8}-/.test(name));
    expect(odd).toEqual([]);
    rmSync(disk.path("ballast"));
  }
  await using server = await serve(home, { shell: disk.shell, env: { CPRG_API_KEYS: key } });
  expect((await server.request("/healthz")).status).toBe(200);
  expect(await server.stop()).toBe(0);
  // Without a key of ours it takes the one that it made, or makes one.
  const child = start(["serve", "--addr", "127.0.0.1:0"], { env: home.env, shell: disk.shell });
  await readText(child.stdout).until(/listening on/);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(0);
}, 120_000);

test("a read-only disk: the server says so and does not start; then it starts and has everything", async () => {
  using home = makeHome();
  await using disk = await mountSmallDisk(home, 12);
  const options = { shell: disk.shell, env: { CPRG_API_KEYS: key } };
  let id = "";
  {
    await using server = await serve(home, options);
    id = await server.submit(quick);
    await result(server, id);
    // Nobody can make it read-only beneath a server that has its files open (mount(2), EBUSY).
    expect(await disk.remount("ro")).not.toBe(0);
    expect((await post(server)).status).toBe(201);
    expect(await server.stop()).toBe(0);
  }
  expect(await disk.remount("ro")).toBe(0);
  const refused = await call(["serve", "--addr", "127.0.0.1:0"], {
    env: { ...home.env, ...options.env },
    shell: disk.shell,
  });
  expect([refused.code, refused.out]).toEqual([2, ""]);
  expect(refused.err).toContain(home.dataDir);
  expect(refused.err).toContain("no way to write");
  expect(await disk.remount("rw")).toBe(0);
  await using server = await serve(home, options);
  expect(await result(server, id)).toMatchObject({ status: "succeeded", stdout: "42\n" });
  expect((await post(server)).status).toBe(201);
  expect(await server.stop()).toBe(0);
});
