/**
 * The two places where CPython's tests run: in a sandbox, and outside as an unprivileged user with
 * the same resource limits. Either takes a batch of modules and reports those that it ran.
 */

import { chmodSync, chownSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Limits } from "../../../src/core/limits.ts";
import { type Bench, ENV, finish, PYTHON } from "../../sandbox/test-engine.ts";
import { brokenOff, type ModuleReport, parseReports } from "./module-report.ts";

/** How long a batch may take, in seconds. */
export interface BatchTimes {
  /** Of one module; after that it hangs. */
  readonly each: number;
  /** After that no other module is started. */
  readonly all: number;
}

/** Runs a batch. Modules without a report have not been run. */
export type Side = (
  modules: readonly string[],
  times: BatchTimes,
) => Promise<readonly ModuleReport[]>;

/** Within the ceilings of src/core/limits.ts. */
export const LIMITS: Limits = {
  wall_seconds: 300,
  cpu_seconds: 300,
  cpu_cores: 2,
  mem_mb: 2048,
  pids: 512,
  disk_mb: 1024,
  inodes: 100_000,
  file_mb: 1024,
  open_files: 1024,
  output_kb: 16_384,
};

const DRIVER = join(import.meta.dir, "run-modules.py");
const NOBODY = 65_534;

/** In a sandbox: a lease for each batch. */
export function insideOf(bench: Bench): Side {
  return async (modules, times) => {
    const lease = await bench.open(LIMITS);
    try {
      await lease.putFile("/workspace/run-modules.py", readFileSync(DRIVER));
      const ran = await finish(
        await lease.exec({
          executable: PYTHON,
          arguments: ["run-modules.py", `${times.each}`, `${times.all}`, ...modules],
          variables: ENV,
          language: "python",
        }),
      );
      const { ended, unfinished } = parseReports(ran.stdout);
      if (unfinished === null) return ended;
      const { reason, violations } = ran.outcome;
      const why = violations.map((violation) => JSON.stringify(violation)).join(" ");
      return [...ended, brokenOff(unfinished, `${reason} ${why}`.trim(), ran.stderr)];
    } finally {
      await lease.release();
    }
  };
}

/**
 * Gives the rest of the command a read-only /usr and no network, as a sandbox has them: a test that
 * writes into the installation or needs a network fails on both sides, and says nothing of the others.
 */
const CONFINE = `mount --bind /usr /usr && mount -o remount,bind,ro /usr && exec "$@"`;

/** Outside: a user without privileges in a directory of its own, with the limits of a sandbox. */
export const outside: Side = async (modules, times) => {
  const directory = mkdtempSync(join(tmpdir(), "cprg-cpython-"));
  try {
    chmodSync(directory, 0o755);
    copyFileSync(DRIVER, join(directory, "run-modules.py"));
    const home = mkdtempSync(join(directory, "home-"));
    chownSync(home, NOBODY, NOBODY);
    const child = Bun.spawn(
      [
        ...["unshare", "--mount", "--net", "--", "sh", "-c", CONFINE, "sh"],
        ...["prlimit", "--core=1", "--memlock=65536", `--nofile=${LIMITS.open_files}`],
        ...[`--fsize=${LIMITS.file_mb * 1024 * 1024}`, `--cpu=${LIMITS.cpu_seconds}`],
        ...["--rtprio=0", "--msgqueue=0", "--"],
        ...["setpriv", `--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups"],
        ...["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"],
        ...[PYTHON, join(directory, "run-modules.py"), `${times.each}`, `${times.all}`],
        ...modules,
      ],
      { cwd: home, env: { ...ENV, HOME: home, TMPDIR: home }, stdin: "ignore", stderr: "pipe" },
    );
    const [text, errors] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    await child.exited;
    const { ended, unfinished } = parseReports(text);
    if (unfinished === null) return ended;
    return [...ended, brokenOff(unfinished, `broke off (${child.exitCode})`, errors)];
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
};
