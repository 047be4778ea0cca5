// Programs with keepers, in the two id maps under which there may be no cgroup, and KILL.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { pipe, readAll, removeTemporaryDirectories, waitReadable } from "./native.ts";
import { map, Sandbox } from "./sandbox.ts";
import { type Report, reportType } from "./wire.ts";

const KEPT = { keeper: true } as const;
const host = requireHost({ root: true, userns: true, programs: ["python3", "setsid"] });

host.describe("a program with a keeper", () => {
  let before: HostState;
  beforeAll(() => {
    before = hostState();
  });
  afterAll(() => {
    expect(leftovers(before)).toEqual([]);
    removeTemporaryDirectories();
  });
  for (const [name, idMap] of Object.entries({ own: map.self, parent: map.parent })) {
    describe(`under ids of map ${name}`, () => describeKept(idMap));
  }
});

function describeKept(idMap: number): void {
  let sandbox: Sandbox;
  beforeAll(() => {
    sandbox = Sandbox.open({ map: idMap });
  });
  afterAll(() => sandbox[Symbol.dispose]());

  /** Starts a shell and waits for its first line. */
  const opened: number[] = [];
  afterEach(() => {
    for (const fd of opened.splice(0)) closeSync(fd);
  });
  const start = (script: string) => {
    const id = sandbox.newId();
    const [out, outChild] = pipe();
    opened.push(out);
    const null0 = openSync("/dev/null", "r+");
    sandbox.send(
      {
        type: "exec",
        id,
        argv: ["/bin/sh", "-c", script],
        path: "/workspace",
        nullStdin: true,
        env: { PATH: "/usr/bin:/bin" },
        ...KEPT,
      },
      [outChild, null0],
    );
    closeSync(outChild);
    closeSync(null0);
    const started = sandbox.nextOf(id);
    expect(started.type).toBe(reportType.started);
    waitReadable(out);
    const end = (): Report => sandbox.nextOf(id);
    return { id, started, end, out: () => Buffer.from(readAll(out)).toString() };
  };

  test("ends with its code, its signal and its usage", () => {
    expect(sandbox.sh("exit 7", KEPT).report).toMatchObject({
      type: reportType.exited,
      code: 7,
      signal: 0,
    });
    for (const signal of [9, 15, 6, 11]) {
      expect(sandbox.sh(`kill -${signal} $$`, KEPT).report).toMatchObject({
        type: reportType.exited,
        code: -1,
        signal,
      });
    }
    const busy = sandbox.sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", KEPT);
    expect(busy.report.userUs + busy.report.systemUs).toBeGreaterThan(20_000n);
  });

  test("is reported by its own pid, beside its keeper's", () => {
    const { started, end, out } = start("echo $$ $PPID");
    expect(out()).toBe(`${started.pid} ${started.entries}\n`);
    expect(Number(started.entries)).toBeGreaterThan(1);
    expect(end().pid).toBe(started.pid);
  });

  test("has nothing open of its keeper's, which has nothing open at all", () => {
    const { started, id, end } = start("echo; sleep 1000");
    const keeper = sandbox.sh(`ls /proc/${started.entries}/fd 2>&1`, KEPT).out;
    // Not dumpable, so it is of the namespace's root: an id that is another here, or the same.
    expect(keeper).toMatch(idMap === map.self ? /^$/ : /Permission denied/);
    const [hostPid = 0] = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => isPid(pid, Number(started.entries), sandbox.pid));
    expect(readdirSync(`/proc/${hostPid}/fd`)).toEqual([]);
    sandbox.send({ type: "kill", id });
    expect(end()).toMatchObject({ type: reportType.exited, signal: 9 });
  });

  test("that cannot start is a failed exec", () => {
    const { report, started } = sandbox.run(["/no/such/program"], KEPT);
    expect(started).toBe(false);
    expect(report).toMatchObject({ type: reportType.execFailed, err: 2 });
  });

  test("is signalled itself, not its keeper", () => {
    const { id, end, out } = start(
      "trap 'echo caught; exit 3' TERM; echo; while :; do sleep 0.05; done",
    );
    sandbox.send({ type: "signal", id, signal: 15 });
    expect(end()).toMatchObject({ code: 3, signal: 0 });
    expect(out()).toContain("caught");
  });

  test("that kills its keeper ends as it would have", () => {
    expect(sandbox.sh("kill -9 $PPID; exit 5", KEPT).report).toMatchObject(
      idMap === map.self ? { code: 5, signal: 0 } : { code: 5 },
    );
    const { end, id } = start("kill -9 $PPID; echo; exec sleep 1000");
    sandbox.send({ type: "kill", id });
    expect(end()).toMatchObject({ code: -1, signal: 9 });
  });

  test("KILL takes all that descends from it, in whatever session, and spares the others", () => {
    const other = start(
      "(setsid sleep 1000 &); trap 'exit 4' USR1; echo; while :; do sleep 0.05; done",
    );
    const forks = "import os\nwhile True:\n  if os.fork() == 0: os.setsid()\n  else: os._exit(0)";
    const { id, end } = start(
      `(setsid sleep 999 &); (setsid python3 -c '${forks}' &); sleep 998 & echo; wait`,
    );
    for (let tries = 0; tries < 50; tries += 1) sandbox.send({ type: "kill", id });
    expect(end()).toMatchObject({ code: -1, signal: 9 });
    sandbox.send({ type: "kill", id });
    const left = sandbox.sh("ps -eo args | grep -c '^sleep 99[89]\\|^python3'", KEPT).out;
    expect(left).toBe("0\n");
    expect(sandbox.sh("ps -eo args | grep -c '^sleep 1000'", KEPT).out).toBe("1\n");
    sandbox.send({ type: "signal", id: other.id, signal: 10 });
    expect(other.end()).toMatchObject({ code: 4, signal: 0 });
    sandbox.send({ type: "kill", id: other.id });
  });

  test("KILL of the only one leaves nothing, also of what had ended before", () => {
    expect(sandbox.sh("(setsid sleep 1000 >/dev/null 2>&1 &)", KEPT).report).toMatchObject({
      code: 0,
    });
    const { id, end } = start("(setsid sleep 1000 &); echo; sleep 1000");
    sandbox.send({ type: "kill", id });
    expect(end()).toMatchObject({ code: -1, signal: 9 });
    expect(sandbox.sh("ps -e -o comm= | sort | uniq | tr '\\n' ' '", KEPT).out).not.toContain(
      "sleep",
    );
  });

  test("KILL of an exec that is not there harms none", () => {
    sandbox.send({ type: "kill", id: 4_000_000_000 });
    expect(sandbox.sh("exit 6", KEPT).report.code).toBe(6);
  });
}

/** Whether a host pid is this pid in the namespace of a process 1. */
function isPid(pid: number, inner: number, init: number): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return (
      new RegExp(`^NSpid:.*\\t${inner}$`, "m").test(status) && status.includes(`PPid:\t${init}\n`)
    );
  } catch {
    // It has ended.
    return false;
  }
}
