// What a program in a sandbox can reach of the host: nothing. Seen from inside by a program that
// walks everything, and from the host through /proc.

import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { type Home, makeHome } from "./cprg.ts";
import { followJob, outputHas } from "./job-events.ts";
import { sandboxName, sandboxProcesses, statusFields } from "./sandbox-processes.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true });
const { test } = host;

const walker = readFileSync(join(import.meta.dir, "../fixtures/e2e-walk.py"), "utf8");
const token = `canary${crypto.randomUUID().replaceAll("-", "")}`;
/** For a host that is busy with other things. */
const TIMEOUT_MS = 180_000;
const places = ["/root", "/home", "/etc", "/var", "/opt", "/srv", "/tmp", "/run"];
const sleeper = "import time; print('ready', flush=True); time.sleep(300)";

const canaries: string[] = [];
let home: Home;
let server: Serving;
let instance: string;

beforeAll(async () => {
  if (host.missing.length > 0) return;
  for (const place of places) {
    const directory = mkdtempSync(join(place, `e2e-${token}-`));
    canaries.push(directory);
    // As open as can be: what keeps a program away is not the mode.
    for (const name of ["file", "other"]) {
      writeFileSync(join(directory, name), `${token}\n${crypto.randomUUID()}`, { mode: 0o666 });
    }
    Bun.spawnSync(["chmod", "-R", "a+rwX", directory]);
  }
  home = makeHome();
  server = await serve(home, {
    words: ["--tenant-concurrency", "4", "--log", "warn"],
    env: { E2E_SECRET: token, LD_E2E: token, CPRG_API_KEYS: `k-${token}` },
  });
  const status = (await (await server.request("/v1/status")).json()) as { instance: string };
  instance = status.instance;
});
afterAll(async () => {
  for (const directory of canaries) rmSync(directory, { recursive: true, force: true });
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

interface Walk {
  readonly found: readonly [path: string, word: string][];
  readonly writable: readonly string[];
  readonly odd: readonly string[];
  readonly count: { readonly directories: number; readonly files: number };
}

async function output(at: Serving, body: Readonly<Record<string, unknown>>): Promise<string> {
  const limits = { wall_seconds: 120, cpu_seconds: 120 };
  const id = await at.submit({ limits, ...body });
  const response = await at.request(`/v1/jobs/${id}/result?wait_seconds=150`);
  const result = (await response.json()) as Record<string, unknown>;
  expect(result).toMatchObject({ status: "succeeded", stderr: "", truncated: false });
  return String(result["stdout"]);
}

async function walk(
  at: Serving,
  { word = token, without = [] }: { word?: string; without?: readonly string[] } = {},
): Promise<Walk> {
  const stdin = [...word].reverse().join("");
  const job = { language: "python", code: walker, stdin, args: without };
  return JSON.parse(await output(at, job)) as Walk;
}

test(
  "a program that walks everything finds no file of the host and nothing to write to",
  async () => {
    const { found, writable, odd, count } = await walk(server);
    expect(found).toEqual([]);
    expect(writable.filter((path) => !isOwn(path)).toSorted()).toEqual([]);
    for (const place of ["/workspace", "/home/agent", "/tmp", "/dev/shm"]) {
      expect(writable).toContain(place);
    }
    // The terminals are the sandbox's own; test/sandbox/terminal.test.ts looks closer.
    const names = ["full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"];
    const devices = names.map((name) => `/dev/${name}`);
    expect(odd.filter((path) => !path.startsWith("/proc/"))).toEqual(devices);
    // It did walk: the host's programs are there, and its /proc.
    expect(count.directories).toBeGreaterThan(100);
    expect(count.files).toBeGreaterThan(1000);
  },
  TIMEOUT_MS,
);

/** Beneath one of the four places. */
function isOwn(path: string): boolean {
  return /^\/(workspace|home\/agent|tmp|dev\/shm)(\/|$)/.test(path);
}

test("the same program does find a directory that the operator binds", async () => {
  using other = makeHome();
  const bound = canaries.find((path) => path.startsWith("/srv/")) ?? "";
  await using open = await serve(other, { words: ["--binds", `${bound}:/srv/bound`] });
  const { found, writable } = await walk(open, { without: ["/usr"] });
  // The kernel's list of mounts names the bound directory too.
  const files = found.map(([path]) => path).filter((path) => !path.startsWith("/proc/"));
  expect(files.toSorted()).toEqual(["/srv/bound/file", "/srv/bound/other"]);
  expect(writable.filter((path) => !isOwn(path))).toEqual([]);
});

test("a program has 0, 1 and 2, no capability, default signals, and nobody's variables", async () => {
  const argv = ["/bin/bash", "-c", "exec /bin/cat /proc/self/status"];
  const text = await output(server, { argv });
  const zero = "0000000000000000";
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
    expect(text).toContain(`\n${set}:\t${zero}\n`);
  }
  for (const set of ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"]) {
    expect(text).toContain(`\n${set}:\t${zero}\n`);
  }
  expect(text).toContain("\nNoNewPrivs:\t1\n");
  expect(text).toMatch(/\nGroups:\s*\n/);

  // ls opens the directory as its own descriptor 3.
  expect(await output(server, { argv: ["/bin/ls", "/proc/self/fd"] })).toBe("0\n1\n2\n3\n");
  const withInput = { argv: ["/bin/ls", "/proc/self/fd"], stdin: "x" };
  expect(await output(server, withInput)).toBe("0\n1\n2\n3\n");
  const ends = await output(server, { argv: ["/bin/readlink", "/proc/self/fd/0"] });
  expect(ends).toBe("/dev/null\n");

  const variables = (await output(server, { argv: ["/usr/bin/env", "-0"] })).split("\0");
  expect(variables.filter(Boolean).toSorted()).toEqual([
    "HOME=/home/agent",
    "LANG=C.UTF-8",
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "TMPDIR=/tmp",
    "USER=agent",
  ]);
});

test("a program has no network but a lo that is down, and no socket of the Internet", async () => {
  const code = `import errno, socket
devices = [line.split(":")[0].strip() for line in open("/proc/net/dev")][2:]
tables = {name: open("/proc/net/" + name).read() for name in ("if_inet6", "ipv6_route")}
routes = open("/proc/net/route").read().splitlines()[1:]
print(devices, sorted(set(tables["if_inet6"].split())), routes)
for family in (socket.AF_INET, socket.AF_INET6):
    for to in (("127.0.0.1", 1), ("10.0.0.1", 80), ("8.8.8.8", 53), ("::1", 1)):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect(to)
            print("connected", family, to)
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                print("reached", family, to)`;
  expect(await output(server, { language: "python", code })).toBe("['lo'] [] []\n");
});

test("init and program of two jobs at once run as four ids of the host, without capabilities", async () => {
  const marks = [1, 2].map(() => `e2e-${crypto.randomUUID()}`);
  const ids: string[] = [];
  for (const mark of marks) {
    const id = await server.submit({ language: "python", code: sleeper, args: [mark] });
    ids.push(id);
    using job = followJob(server, id);
    await job.until(outputHas("ready"));
  }
  const all = sandboxProcesses({ pid: server.process.pid, instance });
  const programs = marks.map((mark) => all.find(({ command }) => command.includes(mark)));
  const inits = programs.map((program) => all.find(({ pid }) => pid === program?.parent));
  const four = [...programs, ...inits].map((process) => {
    if (process === undefined) throw new Error("a process of the sandbox is not to be seen");
    return statusFields(process.pid);
  });
  for (const name of ["Uid", "Gid"]) {
    const values = four.map((fields) => new Set(fields[name]?.split("\t")));
    // Real, effective, saved and file system id are one, and no two of the processes share it.
    expect(values.map(({ size }) => size)).toEqual([1, 1, 1, 1]);
    const distinct = new Set(values.flatMap((value) => [...value]));
    expect(distinct.size).toBe(4);
    for (const value of distinct) expect(Number(value)).toBeGreaterThanOrEqual(1_900_000_000);
  }
  for (const fields of four) expect(fields["Groups"]).toBe("");
  for (const fields of four.slice(0, 2)) {
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
      expect(fields[set]).toBe("0000000000000000");
    }
  }
  const names = programs.map((program) => program && sandboxName(program, instance));
  expect(new Set(names).size).toBe(2);
  for (const id of ids)
    expect((await server.request(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(200);
});

test("two jobs at once see neither each other's processes nor files", async () => {
  const secret = `secret${crypto.randomUUID().replaceAll("-", "")}`;
  const id = await server.submit({
    language: "python",
    code: `open("/tmp/${secret}", "w").write("${secret}"); open("/dev/shm/s", "w").write("${secret}")\n${sleeper}`,
    args: [secret],
    env: { SECRET: secret },
  });
  using job = followJob(server, id);
  await job.until(outputHas("ready"));
  const { found, count } = await walk(server, { word: secret, without: ["/usr"] });
  expect(found).toEqual([]);
  expect(count.files).toBeGreaterThan(100);
  expect((await server.request(`/v1/jobs/${id}`, { method: "DELETE" })).status).toBe(200);
});
