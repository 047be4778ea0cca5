import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, mkdirSync, openSync, readFileSync, rmdirSync, writeSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { native, pipe, readAll, removeTemporaryDirectories } from "./native.ts";
import { initFd, minimalPlan, Sandbox, writeAll } from "./sandbox.ts";
import { reportType, step } from "./wire.ts";

const { ENOENT, ENOEXEC, EBADF, ECHILD, EACCES, ENOTDIR, EINVAL } = osConstants.errno;

requireHost({ root: true, userns: true, programs: ["python3", "unshare"] }).describe("EXEC", () => {
  let before: HostState;
  let sandbox: Sandbox;
  beforeAll(() => {
    expect(initFd).toBeGreaterThan(0);
    before = hostState();
    sandbox = Sandbox.open();
  });
  afterAll(() => {
    sandbox[Symbol.dispose]();
    expect(leftovers(before)).toEqual([]);
    removeTemporaryDirectories();
  });

  test("runs a program and reports its real end", () => {
    const { report, started } = sandbox.run(["/bin/true"]);
    expect(started).toBe(true);
    expect(report).toMatchObject({ type: reportType.exited, code: 0, signal: 0, step: 0, err: 0 });
    expect(report.pid).toBeGreaterThan(1);
    expect(report.maxRssBytes).toBeGreaterThan(100_000n);
  });

  test.each([0, 1, 7, 126, 127, 255])("reports exit code %d", (code) => {
    expect(sandbox.sh(`exit ${code}`).report).toMatchObject({
      type: reportType.exited,
      code,
      signal: 0,
    });
  });

  test.each([9, 15, 6, 11, 13, 1])("reports death by signal %d", (signal) => {
    expect(sandbox.sh(`kill -${signal} $$`).report).toMatchObject({
      type: reportType.exited,
      code: -1,
      signal,
    });
  });

  test("measures use", () => {
    // How the kernel divides time into a user's and its own is a matter of samples: no part is told
    // from what a program does, only from what the program itself was told.
    const program = [
      "from resource import getrusage, RUSAGE_SELF",
      "sum(range(3_000_000))",
      "u = getrusage(RUSAGE_SELF)",
      "print(int(u.ru_utime * 1e6), int(u.ru_stime * 1e6))",
    ].join("\n");
    const { report, out } = sandbox.run(["/usr/bin/python3", "-c", program]);
    const [userUs = 0n, systemUs = 0n] = out.split(" ").map(BigInt);
    expect(userUs + systemUs).toBeGreaterThan(20_000n);
    expect(report.userUs).toBeGreaterThanOrEqual(userUs);
    expect(report.systemUs).toBeGreaterThanOrEqual(systemUs);
  });

  test("gives the program its id, no groups, no capability and no way back", () => {
    const { out } = sandbox.sh("cat /proc/self/status");
    expect(out).toContain("Uid:\t1000\t1000\t1000\t1000\n");
    expect(out).toContain("Gid:\t1000\t1000\t1000\t1000\n");
    expect(out).toContain("Groups:\t \n");
    for (const set of ["Inh", "Prm", "Eff", "Bnd", "Amb"]) {
      expect(out).toContain(`Cap${set}:\t0000000000000000\n`);
    }
    expect(out).toContain("NoNewPrivs:\t1\n");
    for (const set of ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"]) {
      expect(out).toContain(`${set}:\t0000000000000000\n`);
    }
  });

  test("forbids further user namespaces, and mounts", () => {
    expect(sandbox.run(["/usr/bin/unshare", "-U", "true"]).err).toContain(
      "No space left on device",
    );
    expect(sandbox.run(["/usr/bin/unshare", "-m", "true"]).err).toContain(
      "Operation not permitted",
    );
  });

  test("leaves only 0, 1 and 2 open, in a session of its own", () => {
    // ls holds 3 for the listing itself.
    expect(sandbox.sh("ls /proc/self/fd").out).toBe("0\n1\n2\n3\n");
    const fields = sandbox.run(["/bin/cat", "/proc/self/stat"]).out.split(" ");
    const [pid, , , ppid, group, session] = fields;
    expect([ppid, group, session]).toEqual(["1", pid as string, pid as string]);
  });

  test("passes stdin, arguments, environment, directory and umask", () => {
    const id = sandbox.newId();
    const [stdin, stdinWrite] = pipe();
    const [out, outChild] = pipe();
    const script =
      'cat; printf "[%s]" "$0" "$@"; env | grep -e ^A -e ^EMPTY -e ^PATH | sort; pwd; umask';
    sandbox.send(
      {
        type: "exec",
        id,
        path: "/tmp",
        umask: 0o77,
        env: { PATH: "/usr/bin", A: "b c", EMPTY: "" },
        argv: ["sh", "-c", script, "zero", "", "two words", "ü\n"],
      },
      [stdin, outChild, outChild],
    );
    closeSync(stdin);
    closeSync(outChild);
    writeAll(stdinWrite, Buffer.from("from stdin\n"));
    closeSync(stdinWrite);
    expect(readAll(out).toString()).toBe(
      "from stdin\n[zero][][two words][ü\n]A=b c\nEMPTY=\nPATH=/usr/bin\n/tmp\n0077\n",
    );
    closeSync(out);
    expect(sandbox.nextOf(id).type).toBe(reportType.started);
    expect(sandbox.nextOf(id).code).toBe(0);
  });

  test("gives /dev/null for stdin", () => {
    expect(sandbox.sh("readlink /proc/self/fd/0; cat").out).toBe("/dev/null\n");
  });

  test("lowers rlimits and never raises one", () => {
    const nofile = 7;
    const fsize = 1;
    const infinity = 0xffff_ffff_ffff_ffffn;
    const { out } = sandbox.sh("ulimit -Sn; ulimit -Hn; ulimit -Hf", {
      rlimits: [
        { resource: nofile, soft: 32n, hard: 64n },
        { resource: fsize, soft: 1024n, hard: 4096n },
        { resource: fsize, soft: infinity, hard: infinity },
      ],
    });
    expect(out).toBe("32\n64\n8\n"); // -f counts blocks of 512
    const bad = sandbox.run(["/bin/true"], {
      rlimits: [
        { resource: nofile, soft: 9n, hard: 9n },
        { resource: 99, soft: 1n, hard: 1n },
      ],
    });
    expect(bad.report).toMatchObject({
      type: reportType.execFailed,
      step: step.rlimit,
      index: 1,
      err: EINVAL,
    });
  });

  test("raises oom_score_adj and never lowers it", () => {
    const score = (oomScoreAdj: number): number =>
      Number(sandbox.sh("cat /proc/self/oom_score_adj", { oomScoreAdj }).out);
    const own = Number(readFileSync("/proc/self/oom_score_adj", "utf8"));
    expect(score(0)).toBe(own);
    expect(score(-500)).toBe(own);
    expect(score(700)).toBe(700);
    expect(score(900)).toBe(900);
    expect(score(800)).toBe(900); // process 1 was raised, and a child starts where it is
  });

  test("looks names up in the PATH of the program's environment, as execvp(3) does", () => {
    sandbox.sh("mkdir -p d1 d2 d3/tool; echo 'echo found' > d2/tool; chmod 644 d2/tool");
    const run = (PATH: string | undefined, name = "tool"): [number, number, number] => {
      const { report } = sandbox.run([name], { env: PATH === undefined ? {} : { PATH } });
      return [report.type, report.step, report.err];
    };
    const failed = (err: number): [number, number, number] => [
      reportType.execFailed,
      step.execve,
      err,
    ];
    expect(run("/workspace/d1")).toEqual(failed(ENOENT));
    expect(run("/workspace/d1:/workspace/d2:/nowhere")).toEqual(failed(EACCES));
    expect(run("/workspace/d3:/workspace/d1")).toEqual(failed(EACCES));
    sandbox.sh("chmod 755 d2/tool");
    expect(run("/workspace/d3::/workspace/d2/tool:/workspace/d2")).toEqual(failed(ENOEXEC)); // no "#!"
    sandbox.sh("echo '#!/bin/sh' > d2/tool; echo 'echo found' >> d2/tool");
    expect(run("/workspace/d1:/workspace/d3:/workspace/d2")[0]).toBe(reportType.exited);
    expect(run("", "sh")).toEqual(failed(ENOENT)); // an empty element is the working directory
    expect(run(undefined, "sh")[0]).toBe(reportType.exited); // /bin:/usr/bin
    expect(run(`${"/x".repeat(3000)}:/bin`, "sh")[0]).toBe(reportType.exited);
    expect(run("/bin", "")).toEqual(failed(ENOENT));
  });

  const failing: [string, string[], string, number, number][] = [
    ["a missing program", ["/no/such/program"], "/", step.execve, ENOENT],
    ["a program that is a directory", ["/tmp"], "/", step.execve, EACCES],
    ["a path through a file", ["/etc/passwd/x"], "/", step.execve, ENOTDIR],
    ["a file that is not executable", ["/etc/passwd"], "/", step.execve, EACCES],
    ["a missing directory", ["/bin/true"], "/nowhere", step.directory, ENOENT],
    ["a directory that is a file", ["/bin/true"], "/etc/passwd", step.directory, ENOTDIR],
  ];
  test.each(failing)(
    "reports %s as EXEC_FAILED, never as an exit",
    (_name, argv, path, at, err) => {
      const { report, started } = sandbox.run(argv, { path });
      expect(started).toBe(false);
      expect(report).toMatchObject({
        type: reportType.execFailed,
        step: at,
        index: 0,
        err,
        code: 1,
      });
    },
  );

  test("reports an exec that is killed before it is a program as EXEC_FAILED", () => {
    // Its cgroup step writes "0" to a pipe that is full, and waits there until SIGNAL kills it.
    const [read, write] = fullPipe();
    const id = sandbox.newId();
    const null0 = openSync("/dev/null", "r+");
    sandbox.send({ type: "exec", id, argv: ["/bin/true"], nullStdin: true, cgroupCount: 1 }, [
      null0,
      null0,
      write,
    ]);
    sandbox.send({ type: "signal", id, signal: 9 });
    expect(sandbox.nextOf(id)).toMatchObject({
      type: reportType.execFailed,
      step: step.execve,
      err: ECHILD,
      signal: 9,
    });
    for (const fd of [read, write, null0]) closeSync(fd);
  });

  test("starts more at once than it has shared memory for", () => {
    // All but the last wait in their cgroup step for room in a full pipe.
    const [read, write] = fullPipe();
    const null0 = openSync("/dev/null", "r+");
    const ids = Array.from({ length: 20 }, () => sandbox.newId());
    for (const id of ids) {
      sandbox.send(
        {
          type: "exec",
          id,
          argv: ["/bin/sh", "-c", `exit ${id % 100}`],
          nullStdin: true,
          cgroupCount: 1,
        },
        [null0, null0, write],
      );
    }
    expect(sandbox.run(["/bin/true"]).report.code).toBe(0); // nobody waits for them
    closeSync(write);
    readAll(read);
    for (const id of ids) {
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
      expect(sandbox.nextOf(id)).toMatchObject({ type: reportType.exited, code: id % 100 });
    }
    closeSync(read);
    closeSync(null0);
  });

  test("serves 256 at once and refuses one more", () => {
    const [stdin, hold] = pipe();
    const null0 = openSync("/dev/null", "r+");
    const ids = Array.from({ length: 257 }, () => sandbox.newId());
    const last = ids.pop() as number;
    for (const id of ids) {
      while (sandbox.send({ type: "exec", id, argv: ["/bin/cat"] }, [stdin, null0, null0]) !== 0);
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
    }
    sandbox.send({ type: "exec", id: last, argv: ["/bin/cat"] }, [stdin, null0, null0]);
    expect(sandbox.nextOf(last)).toMatchObject({
      type: reportType.execFailed,
      step: step.fork,
      err: 11,
    });
    closeSync(hold);
    for (const id of ids)
      expect(sandbox.nextOf(id)).toMatchObject({ type: reportType.exited, code: 0 });
    closeSync(stdin);
    closeSync(null0);
  });

  test("signals the main process of an exec, and ignores unknown ids", () => {
    const null0 = openSync("/dev/null", "r+");
    const id = sandbox.newId();
    sandbox.send({ type: "exec", id, argv: ["/bin/sleep", "1000"], nullStdin: true }, [
      null0,
      null0,
    ]);
    expect(sandbox.nextOf(id).type).toBe(reportType.started);
    sandbox.send({ type: "signal", id: 999_999, signal: 9 });
    sandbox.send({ type: "signal", id, signal: 15 });
    expect(sandbox.nextOf(id)).toMatchObject({ type: reportType.exited, code: -1, signal: 15 });
    sandbox.send({ type: "signal", id, signal: 15 }); // it is gone: no error, no report
    expect(sandbox.run(["/bin/true"]).report.code).toBe(0);
    closeSync(null0);
  });

  test("reaps every orphan, however many end at once", () => {
    // Three times what init takes in one round, all dead before it looks: one signal for all.
    const count = 200;
    sandbox.sh(`i=0; while [ $i -lt ${count} ]; do sleep 1000 & i=$((i+1)); done >/dev/null 2>&1`);
    const children = (): string[] =>
      readFileSync(`/proc/${sandbox.pid}/task/${sandbox.pid}/children`, "utf8").match(/\d+/g) ?? [];
    const orphans = children();
    expect(orphans).toHaveLength(count);
    native.cprg_signal(sandbox.pidfd, 19);
    for (const pid of orphans) process.kill(Number(pid), 9);
    const isDead = (pid: string): boolean => / Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
    while (!orphans.every(isDead));
    native.cprg_signal(sandbox.pidfd, 18);
    const look =
      "n=0; while grep -q '^State:.Z' /proc/[0-9]*/status; do n=$((n+1)); [ $n -lt 50 ] || exit 1; done";
    expect(sandbox.sh(look).report.code).toBe(0);
    expect(children()).toEqual([]);
  });

  test("reaps orphans and reports none of them", () => {
    expect(sandbox.sh("(sleep 0.01 &) ; exit 3").report.code).toBe(3);
    // Each look is an exec of its own, so init has the time that the orphan takes.
    while (sandbox.sh("ls /proc | grep -c '^[0-9]'").out.trim() !== "4");
    expect(sandbox.sh("cat /proc/1/task/1/children").out.split(" ").filter(Boolean)).toHaveLength(
      1,
    );
  });

  test("cannot be reached by the program: not by signals, not by ptrace, not by rlimits", () => {
    const { out } = sandbox.sh(
      "kill -9 1; kill -STOP 1; cat /proc/1/environ; ls /proc/1/fd; prlimit --pid 1 --cpu=1; echo $?",
    );
    expect(out).toEndWith("1\n");
    expect(sandbox.run(["/bin/true"]).report.code).toBe(0);
  });

  test("names the cgroup descriptor that cannot be written", () => {
    const good = openSync("/dev/null", "w");
    const bad = openSync("/dev/null", "r");
    expect(sandbox.run(["/bin/true"], { cgroupFds: [good, good, bad] }).report).toMatchObject({
      type: reportType.execFailed,
      step: step.execCgroup,
      index: 2,
      err: EBADF,
    });
    closeSync(good);
    closeSync(bad);
  });
});

/** A pipe without room, whose write end waits for it. */
function fullPipe(): [number, number] {
  const [read, nonblocking] = pipe(2);
  const page = new Uint8Array(4096);
  try {
    while (writeSync(nonblocking, page) > 0);
  } catch {
    // EAGAIN: full
  }
  const write = openSync(`/proc/self/fd/${nonblocking}`, "w");
  closeSync(nonblocking);
  return [read, write];
}

requireHost({ root: true, userns: true, cgroup: true }).describe("EXEC with cgroups", () => {
  test("enters each group before anything else", () => {
    const root = cgroupRoot();
    const groups = ["a", "b"].map((name) => join(root, `cprg-ffi-test-${process.pid}-${name}`));
    for (const group of groups) mkdirSync(group);
    const fds = groups.map((group) => openSync(join(group, "cgroup.procs"), "w"));
    {
      using own = Sandbox.open({
        cgroupFds: fds.slice(0, 1),
        plan: { unshare: minimalPlan.unshare & ~0x0200_0000 },
      });
      expect(readFileSync(`/proc/${own.pid}/cgroup`, "utf8")).toContain(`-${process.pid}-a\n`);
      const [first] =
        own
          .run(["/bin/cat", "/proc/self/cgroup"], { cgroupFds: fds.slice(1) })
          .out.match(/cprg-ffi-test-\d+-\w/) ?? [];
      expect(first).toEndWith("-b");
      expect(readFileSync(join(groups[0] ?? "", "cgroup.procs"), "utf8")).toBe(`${own.pid}\n`);
    }
    for (const fd of fds) closeSync(fd);
    for (const group of groups) rmdirSync(group);
    removeTemporaryDirectories();
  });
});

/** Where this process may make groups: the pids hierarchy of v1, or its own group of v2. */
function cgroupRoot(): string {
  const lines = readFileSync("/proc/self/cgroup", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  const pids = lines.find((fields) => fields[1]?.split(",").includes("pids"));
  return pids === undefined
    ? `/sys/fs/cgroup${lines[0]?.[2] ?? ""}`
    : `/sys/fs/cgroup/pids${pids[2] ?? ""}`;
}
