// `cprg worker` against the control plane that was written in Python from PROTOCOL.md alone: every
// case of the reference worker.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";
import { WORKER_CASES } from "../interop/selftest-cases.ts";

const SELFTEST = join(import.meta.dir, "../interop/selftest.py");
const ADAPTER = join(import.meta.dir, "selftest-worker.py");
const PYTHON = "/usr/bin/python3";
/** Side by side, as most of their time is pauses before a stream is dialled again. */
const BATCHES = 3;

let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-selftest-"));
  chmodSync(folder, 0o711);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function run(names: readonly string[]): Promise<string> {
  const child = Bun.spawn([PYTHON, SELFTEST, ...names], {
    env: {
      PATH: process.env["PATH"] ?? "",
      TMPDIR: folder,
      // The pauses before a worker dials again are the real ones.
      CASE_SECONDS: "240",
      // A worker that starts takes its time on a busy machine.
      STUB_PATIENCE: "60",
      EXIT_SECONDS: "60",
      WORKER: [PYTHON, ADAPTER, cprgPath(), "--"].join(" "),
    },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, said] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  await child.exited;
  // What the workers log is JSON, a line each.
  return out.includes("FAILED") ? `${out}\n${said.replace(/^\{.*\n/gm, "")}` : out;
}

requireHost({ root: true, sandbox: true, programs: [PYTHON] }).test(
  "the cases of the reference worker hold for cprg worker",
  async () => {
    const batches = Array.from({ length: BATCHES }, (_, batch) =>
      WORKER_CASES.filter((_name, index) => index % BATCHES === batch),
    );
    const said = (await Promise.all(batches.map(run))).join("");
    const passed = [...said.matchAll(/^ok (\w+)/gm)].map(([, name = ""]) => name);
    expect(said).not.toContain("FAILED");
    expect(passed.toSorted()).toEqual(WORKER_CASES.toSorted());
  },
  900_000,
);

test("it leaves no process and no run directory behind", () => {
  const left = readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/environ`, "latin1").includes(folder);
    } catch {
      return false;
    }
  });
  expect(left).toEqual([]);
});
