import { afterAll, afterEach, beforeEach, expect, test } from "bun:test";
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
} from "node:fs";
import { constants as osConstants } from "node:os";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { removeTemporaryDirectories, temporaryDirectory } from "./native.ts";
import { minimalPlan, minimalSteps, Sandbox, uidInit, uidProgram } from "./sandbox.ts";
import { encodePlan, op, type PlanStep, reportType, step } from "./wire.ts";

const { ENOENT, E2BIG, EBADF, EINVAL, EPROTO } = osConstants.errno;

requireHost({ root: true, userns: true }).describe("cprg_launch()", () => {
  let before: HostState;
  afterAll(removeTemporaryDirectories);
  beforeEach(() => {
    before = hostState();
  });
  afterEach(() => {
    expect(leftovers(before)).toEqual([]);
  });

  /** Launches, and the one record that init or the child writes before it ends. */
  function failure(options: Parameters<typeof Sandbox.launch>[0]): [number, number, number] {
    const sandbox = Sandbox.launch(options);
    if (!(sandbox instanceof Sandbox)) {
      return [sandbox.step, sandbox.index, sandbox.err];
    }
    const report = sandbox.next();
    expect(report.type).toBe(reportType.setupFailed);
    expect(sandbox.nextOrEnd()).toBeUndefined();
    expect(sandbox.reap()).toEqual({ code: 1, signal: 0 });
    sandbox[Symbol.dispose]();
    return [report.step, report.index, report.err];
  }

  const steps = (...more: PlanStep[]): { plan: { steps: PlanStep[] } } => ({
    plan: { steps: [...minimalSteps, ...more] },
  });

  test("starts process 1 with two ids of its own on the host", () => {
    using sandbox = Sandbox.open();
    const status = readFileSync(`/proc/${sandbox.pid}/status`, "utf8");
    expect(status).toContain(`Uid:\t${uidInit}\t${uidInit}\t${uidInit}\t${uidInit}\n`);
    expect(status).toContain(`Gid:\t${uidInit}\t${uidInit}\t${uidInit}\t${uidInit}\n`);
    expect(status).toMatch(/NSpid:\t\d+\t1\n/);
    expect(readFileSync(`/proc/${sandbox.pid}/uid_map`, "utf8").split(/\s+/)).toEqual([
      "",
      "0",
      `${uidInit}`,
      "1",
      "1000",
      `${uidProgram}`,
      "1",
      "",
    ]);
  });

  test("leaves init no more than it needs", () => {
    using sandbox = Sandbox.open();
    sandbox.run(["/bin/true"]); // its last capability goes after READY, before the first exec
    const status = readFileSync(`/proc/${sandbox.pid}/status`, "utf8");
    const setuidSetgidKill = "00000000000000e0";
    const none = "0000000000000000";
    expect(status).toContain(`CapPrm:\t${setuidSetgidKill}\nCapEff:\t${setuidSetgidKill}\n`);
    expect(status).toContain(`CapInh:\t${none}\n`);
    expect(status).toContain(`CapBnd:\t${none}\nCapAmb:\t${none}\nNoNewPrivs:\t1\n`);
    expect(status).toContain("Groups:\t \n");
    expect(status).toMatch(/SigIgn:\t0{16}\n/);
    const held = readdirSync(`/proc/${sandbox.pid}/fd`).map((fd) =>
      readlinkSync(`/proc/${sandbox.pid}/fd/${fd}`),
    );
    expect(held.map((what) => what.replace(/\d+/, "N")).toSorted()).toEqual([
      "anon_inode:[eventfd]",
      "anon_inode:[eventfd]",
      "anon_inode:[eventfd]",
      "anon_inode:[signalfd]",
      "pipe:[N]",
      "socket:[N]",
    ]);
    expect(readFileSync(`/proc/${sandbox.pid}/comm`, "utf8")).toBe("cprg-init\n");
  });

  test("puts init into namespaces of its own, all of them", () => {
    using sandbox = Sandbox.open();
    for (const name of ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"]) {
      expect(readlinkSync(`/proc/${sandbox.pid}/ns/${name}`)).not.toBe(
        readlinkSync(`/proc/self/ns/${name}`),
      );
    }
  });

  test("shows nothing of the host's mounts but what the plan names", () => {
    using sandbox = Sandbox.open();
    const mounts = readFileSync(`/proc/${sandbox.pid}/mountinfo`, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => line.split(" "));
    const points = mounts.map((fields) => fields[4]);
    expect(points[0]).toBe("/");
    expect(points).not.toContain("/.data");
    expect(points.filter((point) => point?.startsWith("/sys") === true)).toEqual([]);
    expect(mounts.find((fields) => fields[4] === "/")?.[5]).toStartWith("ro,nosuid,nodev");
    expect(mounts.find((fields) => fields[4] === "/usr")?.[5]).toStartWith("ro,nosuid,nodev");
    expect(mounts.find((fields) => fields[4] === "/workspace")?.[5]).toStartWith("rw,nosuid,nodev");
    expect(mounts.every((fields) => fields[6] === "-")).toBe(true); // no propagation left
  });

  test("sends a descriptor of the workspace", () => {
    using sandbox = Sandbox.open();
    sandbox.sh("echo inside > result");
    const path = `/proc/self/fd/${sandbox.workspace}/result`;
    expect(readFileSync(path, "utf8")).toBe("inside\n");
    // Whoever writes is charged for the memory, so the kernel must not let the server write.
    expect(() => writeFileSync(`${path}-2`, "x")).toThrow("EOVERFLOW");
  });

  test("ends everything inside when the control socket closes", () => {
    using sandbox = Sandbox.open();
    const id = sandbox.newId();
    const witness = join(temporaryDirectory(), "witness");
    writeFileSync(witness, "");
    const held = openSync(witness, "r");
    sandbox.send(
      {
        type: "exec",
        id,
        argv: ["/bin/sh", "-c", "sleep 1000 & sleep 1000"],
        nullStdin: true,
        env: { PATH: "/usr/bin" },
      },
      [held, held],
    );
    expect(sandbox.nextOf(id).type).toBe(reportType.started);
    closeSync(held);
    sandbox.closeControl();
    expect(sandbox.reap().signal).toBe(0); // it exits by itself, and the kernel kills the rest
    expect(sandbox.nextOrEnd()).toBeUndefined();
  });

  test("dies with the server before it has a plan", () => {
    const sandbox = Sandbox.launch({ planBytes: null });
    if (!(sandbox instanceof Sandbox)) throw new Error("launch failed");
    sandbox.closeControl();
    expect(sandbox.reap()).toEqual({ code: 0, signal: 0 });
    sandbox[Symbol.dispose]();
  });

  test("runs many at once and keeps them apart", () => {
    const sandboxes = Array.from({ length: 12 }, () => Sandbox.open());
    for (const [index, sandbox] of sandboxes.entries()) {
      expect(sandbox.sh(`echo ${index} > mine; ls; cat mine`).out).toBe(`mine\n${index}\n`);
    }
    for (const sandbox of sandboxes) sandbox[Symbol.dispose]();
  });

  test("refuses a malformed request", () => {
    const broken: [number, number][] = [
      [0, 79],
      [4, 3],
      [8, -1],
      [12, -1],
      [16, -1],
      [24, 9],
      [76, 0],
      [68, uidInit],
    ];
    for (const [offset, value] of broken) {
      expect(failure({ header: (view) => view.setInt32(offset, value, true) })).toEqual([
        step.request,
        0,
        EINVAL,
      ]);
    }
  });

  test("names a map that the kernel refuses, and leaves no process", () => {
    const overflow = 4_294_967_295; // (uid_t) -1
    expect(failure({ header: (view) => view.setUint32(60, overflow, true) })).toEqual([
      step.idMap,
      1,
      EINVAL,
    ]);
    expect(failure({ header: (view) => view.setUint32(72, overflow, true) })).toEqual([
      step.idMap,
      2,
      EINVAL,
    ]);
  });

  test("names the cgroup that cannot be entered", () => {
    const null0 = openSync("/dev/null", "r");
    const null1 = openSync("/dev/null", "w");
    expect(failure({ cgroupFds: [null1, null0] })).toEqual([step.cgroup, 1, EBADF]);
    expect(failure({ cgroupFds: [1_000_000] })).toEqual([step.cgroup, 0, EBADF]);
    closeSync(null0);
    closeSync(null1);
  });

  test("names a cgroup v2 directory that is none", () => {
    const directory = openSync("/tmp", "r");
    expect(failure({ cgroupDirFd: directory })).toEqual([step.clone, 0, EBADF]);
    closeSync(directory);
  });

  test("names an init that cannot be executed", () => {
    const file = openSync("/etc/passwd", "r");
    expect(failure({ initFd: file }).slice(0, 2)).toEqual([step.execInit, 0]);
    closeSync(file);
  });

  test("names the plan step whose source is missing", () => {
    expect(failure(steps({ op: op.bind, target: "/x", source: "/no/such/path" }))).toEqual([
      step.mount,
      minimalSteps.length,
      ENOENT,
    ]);
  });

  test("lets an optional source be missing", () => {
    using sandbox = Sandbox.open(
      steps({ op: op.bind, target: "/x", source: "/no/such/path", flags: 4 }),
    );
    expect(sandbox.run(["/bin/ls", "/x"]).report.code).toBe(2);
  });

  test("names the step that is done twice", () => {
    const data = { op: op.data, target: "/d", source: "size=1m" };
    expect(failure(steps(data))).toEqual([step.mount, minimalSteps.length, 17]);
    expect(failure(steps({ op: op.file, target: "/etc/passwd", content: "" }))).toEqual([
      step.mount,
      minimalSteps.length,
      17,
    ]);
  });

  const valid = encodePlan({ ...minimalPlan, scratch: "/sys" });
  const patched = (offset: number, value: number): Uint8Array => {
    const bytes = valid.slice();
    new DataView(bytes.buffer).setUint32(offset, value, true);
    return bytes;
  };
  const table = new DataView(valid.buffer).getUint32(24, true);
  const malformed: [string, Uint8Array, number, number][] = [
    ["too short", valid.slice(0, 47), -1, EPROTO],
    ["of another size", patched(0, 52), -1, EPROTO],
    ["of another ABI", patched(4, 5), -1, EPROTO],
    ["with too many steps", patched(20, 513), -1, E2BIG],
    ["with steps outside", patched(24, valid.byteLength), -1, EINVAL],
    ["with steps across the end", patched(20, 512), -1, EINVAL],
    ["with steps not aligned", patched(24, table + 2), -1, EINVAL],
    ["with steps at 4 GiB", patched(24, 0xffff_fffc), -1, EINVAL],
    ["without a mount namespace", patched(8, 0x4000_0000), -1, EINVAL],
    ["with a namespace of process 1", patched(8, 0x2002_0000), -1, EINVAL],
    ["of another id map", patched(16, 2), -1, EINVAL],
    ["without scratch", patched(28, 0), -1, EINVAL],
    ["with scratch outside", patched(28, 0xffff_ffff), -1, EINVAL],
    ["without its last NUL", valid.slice(0, -1), -1, EINVAL],
    ["with an unknown operation", patched(table, 11), 0, EINVAL],
    ["with an unknown flag", patched(table + 4, 16), 0, EINVAL],
    ["with a setuid mode", patched(table + 8, 0o4755), 0, EINVAL],
    ["with a source outside", patched(table + 12, valid.byteLength), 0, EINVAL],
    ["with a target outside", patched(table + 20, valid.byteLength + 8), 0, EINVAL],
    ["with no target", patched(table + 20, 0), 0, EINVAL],
  ];
  test.each(malformed)("refuses a plan %s", (_name, planBytes, index, err) => {
    expect(failure({ planBytes })).toEqual([step.plan, index, err]);
  });

  test.each([
    "relative",
    "/",
    "/a/",
    "/a//b",
    "/a/../b",
    "/a/./b",
    "/..",
    `/${"x/".repeat(64)}x`,
    `/${"y".repeat(4096)}`,
  ])("refuses the target %.20s", (target) => {
    expect(failure({ plan: { steps: [{ op: op.directory, target }] } })).toEqual([
      step.plan,
      0,
      EINVAL,
    ]);
  });

  test("resolves every target inside the new root, whatever links lead there", () => {
    const host = temporaryDirectory();
    writeFileSync(join(host, "canary"), "host");
    using sandbox = Sandbox.open(
      steps(
        { op: op.directory, target: "/real", mode: 0o755 },
        { op: op.link, target: "/up", source: "../../../../../../../../real" },
        { op: op.link, target: "/absolute", source: "/real" },
        { op: op.file, target: "/up/one", mode: 0o644, content: "1" },
        { op: op.bind, target: "/absolute/two", source: "/etc/passwd", flags: 1 },
        { op: op.directory, target: host, mode: 0o755 },
        { op: op.link, target: "/host", source: host },
        { op: op.directory, target: "/host/inside", mode: 0o755 },
      ),
    );
    expect(sandbox.sh(`ls /real; ls ${host}`).out).toBe("one\ntwo\ninside\n");
    expect(
      failure(
        steps(
          { op: op.link, target: "/dangling", source: "/nowhere" },
          { op: op.file, target: "/dangling/file", content: "" },
        ),
      ),
    ).toEqual([step.mount, minimalSteps.length + 1, ENOENT]);
    expect(readdirSync(host)).toEqual(["canary"]);
    expect(existsSync("/real")).toBe(false);
  });

  test("makes binds read-only with everything mounted below them", () => {
    const host = temporaryDirectory();
    using outer = Sandbox.open(
      steps({ op: op.bind, target: "/dev-all", source: "/dev", flags: 1 }),
    );
    const mounts = readFileSync(`/proc/${outer.pid}/mountinfo`, "utf8")
      .split("\n")
      .map((line) => line.split(" "))
      .filter((fields) => fields[4]?.startsWith("/dev-all") === true);
    expect(mounts.length).toBeGreaterThan(1); // /dev has mounts below it
    for (const fields of mounts) expect(fields[5]).toMatch(/^ro,nosuid,nodev/);
    expect(readdirSync(host)).toEqual([]);
  });

  test("honours what a bind may and may not", () => {
    const host = temporaryDirectory();
    writeFileSync(join(host, "tool"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
    using sandbox = Sandbox.open(
      steps(
        { op: op.bind, target: "/exec", source: host, flags: 1 },
        { op: op.bind, target: "/noexec", source: host, flags: 3 },
        { op: op.bind, target: "/nodev-null", source: "/dev/null", flags: 0 },
      ),
    );
    expect(sandbox.run(["/exec/tool"]).out).toBe("ran\n");
    expect(sandbox.run(["/noexec/tool"]).report.err).toBe(13);
    expect(sandbox.sh("echo > /nodev-null").report.code).not.toBe(0);
    expect(sandbox.sh("echo > /dev/null && echo fine").out).toBe("fine\n");
  });

  test("masks files and directories", () => {
    using sandbox = Sandbox.open(
      steps(
        { op: op.mask, target: "/proc/cpuinfo" },
        { op: op.mask, target: "/proc/meminfo" },
        { op: op.mask, target: "/proc/fs" },
        { op: op.mask, target: "/usr/share" },
      ),
    );
    expect(sandbox.sh("cat /proc/cpuinfo /proc/meminfo; ls -A /proc/fs /usr/share").out).toBe(
      "/proc/fs:\n\n/usr/share:\n",
    );
    expect(sandbox.sh("touch /usr/share/x").report.code).not.toBe(0);
  });

  test("caps the writable file system", () => {
    using sandbox = Sandbox.open();
    expect(sandbox.sh("head -c 80000000 /dev/zero > big").err).toContain("No space left");
    expect(sandbox.sh("rm big; i=0; while : > f$i; do i=$((i+1)); done").err).toContain(
      "No space left",
    );
  });
});
