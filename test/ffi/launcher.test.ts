import { ptr } from "bun:ffi";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { closeSync, readdirSync, readFileSync } from "node:fs";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import {
  native,
  pipe,
  removeTemporaryDirectories,
  scratch,
  send,
  socketpair,
  waitReadable,
} from "./native.ts";
import { type LaunchOptions, launchBytes, map, minimalPlan } from "./sandbox.ts";
import { decodeReport, encodePlan, type Report, reportSize, reportType, step } from "./wire.ts";

const EBADF = 9;
/** Offsets of `struct cprg_launch_job`. */
const AT = { pid: 80, pidfd: 84, arena: 88, step: 96, err: 104, result: 112 } as const;

/** Threads of this process that are a launcher's: it gives itself its name before its first job. */
const launchers = (): string[] =>
  readdirSync("/proc/self/task").filter((tid) => {
    try {
      return readFileSync(`/proc/self/task/${tid}/comm`, "utf8") === "cprg-launcher\n";
    } catch {
      return false; // One of the runtime's, which has ended.
    }
  });

requireHost({ root: true, userns: true }).describe("cprg_launcher()", () => {
  let launcher = -1;
  let before: HostState;
  beforeAll(() => {
    launcher = native.cprg_launcher(ptr(new Uint8Array(16)));
  });
  afterAll(() => {
    closeSync(launcher);
    removeTemporaryDirectories();
  });
  beforeEach(() => {
    before = hostState();
  });
  afterEach(() => {
    expect(leftovers(before)).toEqual([]);
  });

  /** A launch that is asked for. */
  function ask(options: LaunchOptions = {}) {
    const [control, childControl] = socketpair();
    const [report, childReport] = pipe(1);
    const plan = { ...minimalPlan, scratch: scratch(), idMap: map.parent };
    expect(send(control, encodePlan(plan))).toBe(0);
    const job = new DataView(new ArrayBuffer(120));
    const request = launchBytes(options, childControl, childReport);
    new Uint8Array(job.buffer).set(new Uint8Array(request.buffer));
    expect(native.cprg_launch_later(launcher, ptr(job))).toBe(0);
    const next = (): Report => {
      waitReadable(report);
      const bytes = new Uint8Array(reportSize);
      expect(native.cprg_read(report, ptr(bytes), reportSize)).toBe(reportSize);
      return decodeReport(bytes);
    };
    const end = (): void => {
      for (const fd of [control, childControl, report, childReport]) closeSync(fd);
      const pidfd = job.getInt32(AT.pidfd, true);
      if (pidfd < 0) return;
      waitReadable(pidfd);
      expect(native.cprg_reap(pidfd, ptr(new Uint8Array(16)))).toBe(0);
      expect(native.cprg_launch_end(job.getBigUint64(AT.arena, true))).toBe(0);
      closeSync(pidfd);
    };
    return { job, next, end };
  }

  test("is one thread, which no signal interrupts", () => {
    expect(launcher).toBeGreaterThanOrEqual(0);
    const { next, end } = ask();
    for (const _ of [reportType.ready, reportType.launched]) next();
    end();
    expect(launchers()).toHaveLength(1);
    const status = readFileSync(`/proc/self/task/${launchers()[0]}/status`, "utf8");
    // SIGKILL and SIGSTOP cannot be blocked.
    expect(status).toContain("SigBlk:\tfffffffffffbfeff\n");
  });

  test("does many jobs, each told of on its own pipe", () => {
    const asked = Array.from({ length: 8 }, () => ask());
    for (const { job, next, end } of asked) {
      const types = [next(), next()].map(({ type }) => type);
      expect(types.toSorted()).toEqual([reportType.ready, reportType.launched]);
      expect(native.cprg_launch_done(ptr(job))).toBe(1);
      expect(job.getInt32(AT.result, true)).toBe(0);
      // Its name is the file's at first.
      const name = readFileSync(`/proc/${job.getInt32(AT.pid, true)}/comm`, "utf8");
      expect(name).toEndWith("cprg-init\n");
      end();
    }
    expect(launchers()).toHaveLength(1);
  });

  test("says why a job failed, and goes on", () => {
    const failed = ask({ cgroupDirFd: 1_000_000 });
    expect(failed.next().type).toBe(reportType.launched);
    expect(failed.job.getInt32(AT.result, true)).toBe(-EBADF);
    expect(failed.job.getInt32(AT.step, true)).toBe(step.clone);
    expect(failed.job.getInt32(AT.err, true)).toBe(EBADF);
    failed.end();
    const good = ask();
    expect([good.next().type, good.next().type]).toContain(reportType.ready);
    good.end();
  });
});

test("a launcher that cannot be asked says so", () => {
  expect(native.cprg_launch_later(-1, ptr(new Uint8Array(120)))).toBe(-EBADF);
});
