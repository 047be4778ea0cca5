// Where the variables of a claim are found on this host: in its own execs, and nowhere else.

import { expect } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";
import { SecretSearch } from "../helpers/secret-search.ts";
import { until } from "./ground.ts";
import { startPlane, startWorkerProcess, TOKEN } from "./process.ts";

for (const isIsolated of [true, false]) {
  const how = isIsolated ? "in a sandbox" : "without one";
  requireHost({ root: true, sandbox: true }).test(
    `the variables of a claim are in its own execs' environment alone, ${how}`,
    async () => {
      const search = new SecretSearch();
      const plane = await startPlane();
      const worker = startWorkerProcess(plane.port, { program: [cprgPath()], isIsolated });
      try {
        expect(search.inProcesses()).toEqual([]);
        const env = { OF_CLAIM: search.secret };
        const claimed = await plane.registry.claim({ taskId: "t1", epoch: 1, env });
        expect(search.inProcesses()).toEqual([]);
        // State, data, run and temporary directory of the worker are beneath one.
        const top = dirname(worker.stateDir);
        expect(readdirSync(top).length).toBeGreaterThan(1);
        expect(search.inFiles(top)).toEqual([]);
        const lease = new WorkerLease(claimed, {});
        const exec = await lease.exec({
          executable: "/bin/sleep",
          arguments: ["1000"],
          variables: {},
        });
        await until(() => search.inProcesses().length > 0);
        // One process has it, and that is the program.
        const found = search.inProcesses();
        expect(found).toHaveLength(1);
        const [pid = ""] = found[0]?.split("/") ?? [];
        expect(readFileSync(`/proc/${pid}/cmdline`, "latin1")).toBe("/bin/sleep\x001000\0");
        const { stdout } = await lease.invoke({
          executable: "/bin/sh",
          arguments: ["-c", "cat /proc/$PPID/environ /proc/$PPID/cmdline; ls -l /proc/$PPID/fd"],
        });
        expect(stdout).not.toContain(TOKEN);
        expect(search.inFiles(top)).toEqual([]);
        await claimed.release();
        await exec.outcome;
        expect(search.inProcesses()).toEqual([]);
        expect(search.inFiles(top)).toEqual([]);
        worker.kill("SIGTERM");
        await worker.exited;
        expect(search.inFiles(top)).toEqual([]);
        expect(search.isIn(Buffer.from(await worker.said))).toBe(false);
      } finally {
        await worker.end();
        await plane.close();
      }
    },
  );
}
