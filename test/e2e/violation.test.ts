// A forbidden system call, from every language, as whoever submits the job sees it.

import { afterAll, beforeAll, expect } from "bun:test";
import { seccompSupport } from "../../src/sandbox/seccomp/host-support.ts";
import { archOf, syscallNumber } from "../../src/sandbox/seccomp/syscall-table.ts";
import { requireHost } from "../helpers/host.ts";
import { call, type Home, makeHome } from "./cprg.ts";
import { followJob } from "./job-events.ts";
import { type Serving, serve } from "./server.ts";

const canNotify = seccompSupport().mode === "notify";
const { test, missing } = requireHost({
  root: true,
  cgroup: true,
  programs: ["unshare", ...(canNotify ? [] : ["a kernel that notifies"])],
});
const arch = archOf(process.arch) ?? "x86_64";

let home: Home;
let server: Serving;
beforeAll(async () => {
  if (missing.length > 0) return;
  home = makeHome();
  server = await serve(home, { words: ["--log", "warn"] });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  home?.[Symbol.dispose]();
});

const jobs = [
  { language: "python", code: "import subprocess; subprocess.run(['unshare', '-m', 'true'])" },
  { language: "bash", code: "unshare -m true; echo went on" },
  { language: "node", code: "require('child_process').spawnSync('unshare', ['-m', 'true'])" },
  { language: "typescript", code: "Bun.spawnSync(['unshare', '-m', 'true']); console.log('on')" },
  { argv: ["unshare", "-m", "true"] },
];
for (const job of jobs) {
  test(`a violation in a job of ${job.language ?? "argv"} ends it, named`, async () => {
    const id = await server.submit(job);
    using followed = followJob(server, id);
    const { data } = await followed.until(({ kind }) => kind === "finished");
    expect(data).toMatchObject({ status: "failed", reason: "seccomp_violation" });
    const kinds = followed.events.map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind !== "usage")).toEqual([
      "queued",
      "started",
      "violation",
      "finished",
    ]);
    expect(followed.events.find(({ kind }) => kind === "started")?.data).toMatchObject({
      layers: { seccomp: "notify" },
      missing: [],
    });
    expect(followed.events.find(({ kind }) => kind === "violation")?.data).toEqual({
      type: "seccomp_violation",
      syscall: "unshare",
      nr: syscallNumber("unshare", arch) ?? -1,
      arch,
    });
  });
}

test("an operator adds calls; production takes neither the unsafe ones nor no filter", async () => {
  const sync = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syncfs(0))";
  expect((await call(["run", "-c", sync], home)).out).toBe("-1\n");
  const added = ["run", "--seccomp-allow", "syncfs", "-c", sync];
  expect((await call(added, home)).out).toBe("0\n");
  for (const words of [["--seccomp", "off"], ["--seccomp-unsafe"]]) {
    using other = makeHome();
    const env = { ...other.env, CPRG_API_KEYS: "0123456789abcdef0123" };
    const refused = await call(["serve", "--env", "production", ...words], { env });
    expect(refused.code).not.toBe(0);
    expect(refused.err).toContain("is not for production");
  }
});
