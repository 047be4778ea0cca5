// Where the variables of a claim are found on this host: in its own execs, and nowhere else.

import { expect } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";
import { until } from "./ground.ts";
import { startPlane, startWorkerProcess, TOKEN } from "./process.ts";

const SECRET = `v "${crypto.randomUUID()}"/é`;
const base64 = Buffer.from(SECRET).toString("base64").replace(/=+$/, "").slice(0, -1);
const FORMS = [
  SECRET,
  JSON.stringify(SECRET).slice(1, -1),
  encodeURIComponent(SECRET),
  base64,
  base64.replaceAll("+", "-").replaceAll("/", "_"),
].map((form) => Buffer.from(form));

const holdsIt = (bytes: Uint8Array): boolean =>
  FORMS.some((form) => Buffer.from(bytes).includes(form));

/** Files of processes that hold it, as `PID/NAME`. */
function findInProcesses(): readonly string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) =>
      ["environ", "cmdline"].flatMap((name) => {
        try {
          return holdsIt(readFileSync(`/proc/${pid}/${name}`)) ? [`${pid}/${name}`] : [];
        } catch {
          return []; // It has ended.
        }
      }),
    );
}

/** Files beneath a directory that hold it; a socket or a fifo holds nothing. */
function findInFiles(directory: string): readonly string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((path) => {
      try {
        return holdsIt(readFileSync(path));
      } catch {
        return false; // Gone, or of the kernel's.
      }
    });
}

for (const isIsolated of [true, false]) {
  const how = isIsolated ? "in a sandbox" : "without one";
  requireHost({ root: true, sandbox: true }).test(
    `the variables of a claim are in its own execs' environment alone, ${how}`,
    async () => {
      const plane = await startPlane();
      const worker = startWorkerProcess(plane.port, { program: [cprgPath()], isIsolated });
      try {
        expect(findInProcesses()).toEqual([]);
        const env = { OF_CLAIM: SECRET };
        const claimed = await plane.registry.claim({ taskId: "t1", epoch: 1, env });
        expect(findInProcesses()).toEqual([]);
        // State, data, run and temporary directory of the worker are beneath one.
        const top = dirname(worker.stateDir);
        expect(readdirSync(top).length).toBeGreaterThan(1);
        expect(findInFiles(top)).toEqual([]);
        const lease = new WorkerLease(claimed, {});
        const exec = await lease.exec({
          executable: "/bin/sleep",
          arguments: ["1000"],
          variables: {},
        });
        await until(() => findInProcesses().length > 0);
        // One process has it, and that is the program.
        const found = findInProcesses();
        expect(found).toHaveLength(1);
        const [pid = ""] = found[0]?.split("/") ?? [];
        expect(readFileSync(`/proc/${pid}/cmdline`, "latin1")).toBe("/bin/sleep\x001000\0");
        const { stdout } = await lease.invoke({
          executable: "/bin/sh",
          arguments: ["-c", "cat /proc/$PPID/environ /proc/$PPID/cmdline; ls -l /proc/$PPID/fd"],
        });
        expect(stdout).not.toContain(TOKEN);
        expect(findInFiles(top)).toEqual([]);
        await claimed.release();
        await exec.outcome;
        expect(findInProcesses()).toEqual([]);
        expect(findInFiles(top)).toEqual([]);
        worker.kill("SIGTERM");
        await worker.exited;
        expect(findInFiles(top)).toEqual([]);
        expect(holdsIt(Buffer.from(await worker.said))).toBe(false);
      } finally {
        await worker.end();
        await plane.close();
      }
    },
  );
}
