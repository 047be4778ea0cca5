// `cprg worker` against the control plane that was written in Python from PROTOCOL.md alone: the
// cases of the reference worker, but those that are of options or insides of the reference alone.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";

const SELFTEST = join(import.meta.dir, "../interop/selftest.py");
const ADAPTER = join(import.meta.dir, "selftest-worker.py");
const PYTHON = "/usr/bin/python3";
/** Side by side, as most of their time is pauses before a stream is dialled again. */
const BATCHES = 3;

/** Cases that are not of `cprg worker`, or that it does not keep, each with why. */
const NOT_OURS: Readonly<Record<string, string>> = {
  never_reached_is_exit_code_4: "cprg worker dials for ever: it has no --attempts",
  tls_with_client_certificates: "needs --attempts; test/bridge has client certificates",
  a_plain_worker_lists_nothing_and_serves_all_the_same: "cprg worker has no --plain",
  refusals_that_pass_are_tried_again: "it stops at a refusal without a reason, as a proxy's",
  a_control_plane_that_says_nothing_is_left: "it does not leave a stream for want of answers",
  items_beyond_the_credit_end_the_call: "runs the reference's Peer in the test's own process",
  without_credit_a_call_that_takes_nothing_is_given_up: "as above",
  frames_that_are_dropped_are_counted_late_ones_are_not: "as above",
  codes_and_reasons_are_read_as_they_are_written: "of the reference's own functions",
  open_calls_and_their_bytes_are_bounded: "as above",
};

let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-selftest-"));
  chmodSync(folder, 0o711);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function casesOf(source: string): readonly string[] {
  return [...source.matchAll(/^@case\nasync def (\w+)/gm)].map(([, name = ""]) => name);
}

async function run(names: readonly string[]): Promise<string> {
  const child = Bun.spawn([PYTHON, SELFTEST, ...names], {
    env: {
      PATH: process.env["PATH"] ?? "",
      TMPDIR: folder,
      // The pauses before a worker dials again are the real ones.
      CASE_SECONDS: "180",
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
    const all = casesOf(readFileSync(SELFTEST, "utf8"));
    expect(Object.keys(NOT_OURS).filter((name) => !all.includes(name))).toEqual([]);
    const ours = all.filter((name) => !Object.hasOwn(NOT_OURS, name));
    const batches = Array.from({ length: BATCHES }, (_, batch) =>
      ours.filter((_name, index) => index % BATCHES === batch),
    );
    const said = (await Promise.all(batches.map(run))).join("");
    const passed = [...said.matchAll(/^ok (\w+)/gm)].map(([, name = ""]) => name);
    expect(said).not.toContain("FAILED");
    expect(passed.toSorted()).toEqual(ours.toSorted());
  },
  400_000,
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
