// The compiled binary as a user that owns nothing on this host and was given nothing.

import { expect, setDefaultTimeout } from "bun:test";
import {
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { closedAncestor } from "../../src/sandbox/instance.ts";
import { requireHost } from "../helpers/host.ts";
import { cprgPath, type Ended, makeHome } from "./cprg.ts";
import { followJob, isKind, outputHas } from "./job-events.ts";
import { serve } from "./server.ts";
import { until } from "./until.ts";

/** Nobody, and another one for each test process on this host. */
const USER = 30_000_000 + (process.pid % 1_000_000);
const AS_USER = ["setpriv", `--reuid=${USER}`, `--regid=${USER}`, "--clear-groups"];
const { test } = requireHost({ root: true, userns: true, programs: ["setpriv", "unshare"] });
setDefaultTimeout(120_000);

/** A home of that user's, and the binary where the user can reach it. */
function makeUserHome() {
  const home = makeHome();
  mkdirSync(home.dataDir, { mode: 0o700 });
  for (const path of [home.path, home.dataDir, join(home.path, "run")]) {
    chownSync(path, USER, USER);
  }
  let binary = cprgPath();
  if (closedAncestor(binary) !== null) {
    binary = join(home.path, "cprg");
    copyFileSync(cprgPath(), binary);
  }
  return { ...home, binary, [Symbol.dispose]: home[Symbol.dispose] };
}

interface Way {
  readonly env?: Readonly<Record<string, string>>;
  readonly shell?: readonly string[];
}

async function run(binary: string, words: readonly string[], way: Way = {}): Promise<Ended> {
  const child = Bun.spawn([...(way.shell ?? AS_USER), binary, ...words], {
    env: { PATH: "/usr/bin:/bin", CPRG_PYTHON: "/usr/bin/python3", ...way.env },
    cwd: "/",
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { code: await child.exited, out, err };
}

test("run works for a user with no set-up, and keeps to a directory of its own", async () => {
  using home = makeUserHome();
  const runDir = `/tmp/cprg-${USER}`;
  expect(existsSync(runDir)).toBe(false);
  try {
    // A home that is somebody else's and a run directory that su(1) left behind.
    const env = { HOME: "/root", XDG_RUNTIME_DIR: "/root" };
    const ended = await run(home.binary, ["run", "-c", "print(6*7)"], { env });
    expect(ended).toEqual({ code: 0, out: "42\n", err: "" });
    const status = statSync(runDir);
    expect([status.uid, status.mode & 0o777]).toEqual([USER, 0o700]);
  } finally {
    rmSync(runDir, { recursive: true, force: true });
  }
});

test("run ends with the program's exit code, or what ended it", async () => {
  using home = makeUserHome();
  const cases: [number, string, string[]][] = [
    [7, "raise SystemExit(7)", []],
    [139, "import os; os.kill(os.getpid(), 11)", []],
    [124, "while True: pass", ["--timeout", "300ms"]],
    [124, "import os\nos.fork()\nwhile True: pass", ["--limit", "cpu_seconds=0.5"]],
    [137, "x = []\nwhile True: x.append(bytearray(1 << 20))", ["--mem", "64"]],
    [137, "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", []],
  ];
  for (const [code, program, flags] of cases) {
    const ended = await run(home.binary, ["run", ...flags, "-c", program], home);
    expect({ program, code: ended.code, out: ended.out }).toEqual({ program, code, out: "" });
  }
});

test("files go in and come out, and belong to the user", async () => {
  using home = makeUserHome();
  const code =
    "import os\nos.mkdir('out')\nopen('out/a', 'w').write('left')\nos.chmod('out/a', 0)\nos.mkdir('out/d', 0o755)\nopen('out/d/b', 'w').write(str(os.getuid()))";
  const out = join(home.path, "results");
  const ended = await run(home.binary, ["run", "--out", out, "-c", code], home);
  expect(ended).toMatchObject({ code: 0, err: "" });
  expect(readFileSync(join(out, "a"), "utf8")).toBe("left");
  expect(readFileSync(join(out, "d/b"), "utf8")).toBe("1000");
  expect(statSync(join(out, "a")).uid).toBe(USER);
});

test("serve says what is missing, in health, status and each job; nothing outlives it", async () => {
  using home = makeUserHome();
  await using server = await serve(home, { shell: AS_USER });
  const health = await (await fetch(`${server.url}/healthz`)).json();
  const missing = ["identity", "cgroup"];
  expect(health).toEqual({ ok: true, sandbox: "rootless", missing });
  const status = (await (await server.request("/v1/status")).json()) as Record<string, unknown>;
  expect(status).toMatchObject({ sandbox: "rootless", missing });
  expect(status["layers"]).toMatchObject({ identity: "shared", cgroup: false, seccomp: "notify" });
  const id = await server.submit({
    language: "python",
    code: "import os, time\nif os.fork() == 0: os.setsid()\nprint('ready', flush=True)\ntime.sleep(1000)",
  });
  using job = followJob(server, id);
  expect((await job.until(isKind("started"))).data).toMatchObject({ missing });
  await job.until(outputHas("ready"));
  expect(processesOfUser().length).toBeGreaterThan(3);
  await server.stop("SIGKILL");
  await until(() => (processesOfUser().length === 0 ? true : null), {
    what: "all of the user's processes are gone",
    state: processesOfUser,
  });
});

test("doctor works, names what is missing and how to get it", async () => {
  using home = makeUserHome();
  const ended = await run(home.binary, ["doctor", "--json"], home);
  const report = JSON.parse(ended.out) as {
    ok: boolean;
    uid: number;
    layers: { name: string; ok: boolean; required: boolean; fix: string | null }[];
  };
  expect([ended.code, report.ok, report.uid]).toEqual([0, true, USER]);
  const lacking = report.layers.filter(({ ok }) => !ok);
  expect(lacking.map(({ name }) => name)).toEqual(["identity", "cgroup"]);
  for (const { required, fix } of lacking)
    expect([required, fix]).toEqual([false, expect.any(String)]);
});

test("production takes no missing layer, named or not", async () => {
  using home = makeUserHome();
  const words = ["run", "-c", "print(1)"];
  for (const allowed of ["", "identity,cgroup"]) {
    const env = { ...home.env, CPRG_ENV: "production", CPRG_ALLOW_MISSING: allowed };
    const refused = await run(home.binary, words, { env });
    expect(refused).toMatchObject({ code: 125, out: "" });
    expect(refused.err).toContain("missing on this host: identity, cgroup");
  }
});

test("a host that forbids it is named, with the fix", async () => {
  using home = makeHome();
  const inside = (script: string): Way => ({
    env: { ...home.env, CPRG_SANDBOX: "rootless" },
    shell: [
      "unshare",
      "--user",
      "--map-root-user",
      "--mount",
      "sh",
      "-c",
      `${script}; exec "$@"`,
      "sh",
    ],
  });
  const cases: [string, RegExp][] = [
    ["echo 1 > /proc/sys/user/max_user_namespaces", /user\.max_user_namespaces = 15000/],
    ["mount -t tmpfs none /proc/fs", /umount|unmask=|systempaths=unconfined|Unmasked/],
  ];
  for (const [script, fix] of cases) {
    const ended = await run(cprgPath(), ["run", "-c", "print(1)"], inside(script));
    expect([script, ended.code, ended.out]).toEqual([script, 125, ""]);
    expect(ended.err).toMatch(fix);
  }
});

test("a bind that the user cannot reach is named, and nothing else is blamed", async () => {
  using home = makeUserHome();
  const closed = join(home.path, "closed");
  mkdirSync(join(closed, "given"), { recursive: true, mode: 0o700 });
  const words = ["run", "--binds", `${join(closed, "given")}:/opt/given`, "-c", "print(1)"];
  const ended = await run(home.binary, words, home);
  expect(ended).toMatchObject({ code: 125, out: "" });
  expect(ended.err).toContain(`mount "${join(closed, "given")}": EACCES`);
  expect(ended.err).toMatch(/^ +hint: .*CPRG_BINDS/m);
  expect(ended.err).not.toMatch(/docker|podman|namespaces/i);
});

function processesOfUser(): string[] {
  const listed = Bun.spawnSync(["ps", "-u", String(USER), "-o", "pid="]);
  return listed.stdout.toString().trim().split("\n").filter(Boolean);
}
