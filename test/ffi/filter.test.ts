// The filter of an exec as C installs it: which program it takes, and what init says of a trapped call.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, readdirSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { nullFd, removeTemporaryDirectories } from "./native.ts";
import { Sandbox } from "./sandbox.ts";
import { type Report, type Request, reportType, step } from "./wire.ts";

const { EINVAL } = osConstants.errno;
const SIGKILL = 9;
const SIGSYS = 31;
/** unshare(2) and AUDIT_ARCH_* of this machine, from <linux/audit.h>. */
const [UNSHARE, AUDIT_ARCH] = process.arch === "x64" ? [272, 0xc000_003e] : [97, 0xc000_00b7];
const VERDICT = { kill: 0x8000_0000, notify: 0x7fc0_0000, allow: 0x7fff_0000 } as const;
/** enum cprg_filter. */
const FILTER = { none: 0, notify: 1, kill: 2 } as const;

/** A program that answers one call, unshare(2), and lets all else run. */
function program(verdict: number, nr = UNSHARE): Uint8Array {
  const lines = [
    [0x20, 0, 0, 0],
    [0x15, 0, 1, nr],
    [0x06, 0, 0, verdict],
    [0x06, 0, 0, VERDICT.allow],
  ] as const;
  const view = new DataView(new ArrayBuffer(lines.length * 8));
  lines.forEach(([code, yes, no, value], index) => {
    view.setUint16(index * 8, code, true);
    view.setUint8(index * 8 + 2, yes);
    view.setUint8(index * 8 + 3, no);
    view.setUint32(index * 8 + 4, value, true);
  });
  return new Uint8Array(view.buffer);
}

const notify = program(VERDICT.notify);
const kill = program(VERDICT.kill);
const malformed = new Uint8Array(8).fill(0xff);
const VIOLATE = ["/usr/bin/unshare", "-m", "true"];

requireHost({ root: true, userns: true, programs: ["unshare", "python3"] }).describe(
  "the filter of an exec",
  () => {
    let before: HostState;
    let sandbox: Sandbox;
    let out = -1;
    beforeAll(() => {
      before = hostState();
      out = nullFd();
      sandbox = Sandbox.open();
    });
    afterAll(() => {
      sandbox[Symbol.dispose]();
      closeSync(out);
      expect(leftovers(before)).toEqual([]);
      removeTemporaryDirectories();
    });

    /** Every report of one exec. */
    function reportsOf(argv: string[], filter: Partial<Request>): Report[] {
      const id = sandbox.newId();
      const request = { type: "exec", id, argv, nullStdin: true, path: "/workspace" } as const;
      sandbox.send({ ...request, env: { PATH: "/usr/bin:/bin" }, ...filter }, [out, out]);
      const reports: Report[] = [];
      for (;;) {
        const report = sandbox.nextOf(id);
        reports.push(report);
        if (report.type !== reportType.started && report.type !== reportType.violation) {
          return reports;
        }
      }
    }

    const initFds = (): number => readdirSync(`/proc/${sandbox.pid}/fd`).length;

    test("is the one that notifies, where the kernel does, and the call is reported once", () => {
      const reports = reportsOf(VIOLATE, { notify, kill });
      const [started, violation, exited] = reports;
      expect(reports).toHaveLength(3);
      expect(started).toMatchObject({ type: reportType.started, code: FILTER.notify });
      expect(violation).toMatchObject({
        type: reportType.violation,
        code: UNSHARE,
        entries: BigInt(AUDIT_ARCH),
        pid: started?.pid,
        signal: 0,
      });
      expect(exited).toMatchObject({ type: reportType.exited, code: -1, signal: SIGKILL });
    });

    test("lets a program that does nothing of the kind end as it likes", () => {
      const reports = reportsOf(["/bin/sh", "-c", "exit 3"], { notify, kill });
      expect(reports.map(({ type, code }) => [type, code])).toEqual([
        [reportType.started, FILTER.notify],
        [reportType.exited, 3],
      ]);
    });

    test("is the one that kills, where that is all there is, or the other is not to be had", () => {
      const noDescriptor = [{ resource: 7, soft: 4n, hard: 4n }];
      const ways: Partial<Request>[] = [
        { kill },
        { notify: malformed, kill },
        { notify, kill, rlimits: noDescriptor },
      ];
      for (const way of ways) {
        expect(reportsOf(VIOLATE, way)).toMatchObject([
          { type: reportType.started, code: FILTER.kill },
          { type: reportType.exited, code: -1, signal: SIGSYS },
        ]);
      }
    });

    test("is none where none is asked for", () => {
      const [started] = reportsOf(["/bin/true"], {});
      expect(started).toMatchObject({ type: reportType.started, code: FILTER.none });
    });

    test("that cannot be installed is a failed step, and nothing runs", () => {
      for (const way of [{ kill: malformed }, { notify: malformed, kill: malformed }]) {
        expect(reportsOf(["/bin/true"], way)).toMatchObject([
          { type: reportType.execFailed, step: step.seccomp, index: 0, err: EINVAL },
        ]);
      }
    });

    test("that traps the child itself is a failed step too, and hangs nothing", () => {
      const chdir = process.arch === "x64" ? 80 : 49;
      const filter = { notify: program(VERDICT.notify, chdir), kill };
      expect(reportsOf(["/bin/true"], filter)).toMatchObject([
        { type: reportType.execFailed, step: step.seccomp, index: 2, signal: SIGKILL },
      ]);
    });

    test("does not hide why a program cannot start", () => {
      expect(reportsOf(["/no-such-program"], { notify, kill })).toMatchObject([
        { type: reportType.execFailed, step: step.execve, err: osConstants.errno.ENOENT },
      ]);
      expect(reportsOf(["/bin/true"], { notify, kill, path: "/no-such" })).toMatchObject([
        { type: reportType.execFailed, step: step.directory, err: osConstants.errno.ENOENT },
      ]);
    });

    test("holds what a descendant tries after the main program has ended", () => {
      const code = `import ctypes, os, time
main = os.getpid()
if os.fork() == 0:
  while os.path.exists(f"/proc/{main}"): time.sleep(0.001) # until init has reaped it
  open("/workspace/tries", "w")
  ctypes.CDLL(None).syscall(${UNSHARE}, 0)
  open("/workspace/returned", "w")
`;
      const reports = reportsOf(["/usr/bin/python3", "-c", code], { notify, kill });
      expect(reports.map(({ type, code: ended }) => [type, ended])).toEqual([
        [reportType.started, FILTER.notify],
        [reportType.exited, 0],
      ]);
      // It waits in its call until the sandbox ends, and init holds the listener as long.
      while (!sandbox.sh("ls /workspace").out.includes("tries")) Bun.sleepSync(5);
      expect(sandbox.sh("ls /workspace").out).toBe("tries\n");
    });

    test("costs no descriptor once nothing is left under it", () => {
      const fds = initFds();
      for (let round = 0; round < 60; round++) {
        expect(reportsOf(["/bin/true"], { notify, kill })).toHaveLength(2);
      }
      expect(initFds()).toBeLessThanOrEqual(fds + 1);
    });
  },
);
