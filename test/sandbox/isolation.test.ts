import { beforeAll, expect, test } from "bun:test";
import { readFileSync, readlinkSync } from "node:fs";
import { availableParallelism, getPriority } from "node:os";
import { requireHost } from "../helpers/host.ts";
import { IS_V2 } from "./group-values.ts";
import { pidsOfRange } from "./snapshot.ts";
import {
  ENV,
  finish,
  fixture,
  ID_RANGE,
  PYTHON,
  type Ran,
  until,
  useEngine,
} from "./test-engine.ts";

const host = requireHost({ sandbox: true });

/** On v2 the namespace begins at the group of process 1 (cgroup-v2.ts). */
const OWN_GROUP = IS_V2 ? /^0::\/\.\.\/run\/exec-\d+$/ : /:(memory|cpu|):\/(exec-\d+)?$/;

interface Seen {
  readonly status: Readonly<Record<string, string>>;
  readonly namespaces: Readonly<Record<string, string>>;
  readonly [name: string]: unknown;
}

// Every other layer holds by itself: the filter is taken away to see it.
for (const isFiltered of [true, false]) describeInside(isFiltered);

function describeInside(isFiltered: boolean): void {
  host.describe(`from inside, ${isFiltered ? "under" : "without"} a filter`, () => {
    const bench = useEngine({ seccomp: { isOn: isFiltered, allow: [] } });
    let ran: Ran;
    let seen: Seen;

    beforeAll(async () => {
      process.env["CPRG_TEST_SECRET"] = "the server's own";
      process.umask(0o077);
      try {
        ran = await bench.python(fixture("inspect-self.py"), {
          spec: { variables: { ...ENV, OWN: "x" } },
        });
      } finally {
        process.umask(0o022);
        delete process.env["CPRG_TEST_SECRET"];
      }
      expect(ran.stderr).toBe("");
      seen = JSON.parse(ran.stdout) as Seen;
    });

    test("it is nobody: no capability in any of the five sets, no groups, no way up", () => {
      for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
        expect([set, seen.status[set]]).toEqual([set, "0000000000000000"]);
      }
      expect(seen.status["NoNewPrivs"]).toBe("1");
      expect(seen.status["Uid"]).toBe("1000\t1000\t1000\t1000");
      expect(seen.status["Gid"]).toBe("1000\t1000\t1000\t1000");
      expect(seen["groups"]).toEqual([]);
      // An id that is not mapped is no id at all.
      expect(seen["become_root"]).toMatch(/^(Operation not permitted|Invalid argument)$/);
      expect(seen["mknod"]).toBe("Operation not permitted");
    });

    test("only its three streams are open", () => {
      const targets = seen["descriptors"] as Record<string, string>;
      expect(Object.keys(targets).sort()).toEqual(["0", "1", "2"]);
      expect(targets["0"]).toBe("/dev/null");
      expect(targets["1"]).toStartWith("pipe:");
      expect(targets["2"]).toStartWith("pipe:");
    });

    test("its environment is what it was given", () => {
      // Python may set LC_CTYPE for itself (PEP 538).
      const { LC_CTYPE: _, ...rest } = seen["environment"] as Record<string, string>;
      expect(rest).toEqual({ ...ENV, OWN: "x" });
    });

    test("signals, umask, priority, affinity and session are as a new login's", () => {
      for (const mask of ["SigBlk", "SigPnd", "ShdPnd"]) {
        expect([mask, seen.status[mask]]).toEqual([mask, "0000000000000000"]);
      }
      // Python ignores SIGPIPE (13) and SIGXFSZ (25) by itself; the server ignores them too.
      expect(seen.status["SigIgn"]).toBe("0000000001001000");
      expect(seen["umask"]).toBe(0o022);
      // Process 1 may not take back what the server was niced by (setpriority(2)).
      expect(seen["priority"]).toBe(Math.max(0, getPriority()));
      expect(seen["affinity"]).toBe(availableParallelism());
      expect(seen["session"]).toBe(true);
      expect(seen["hostname"]).toBe("sandbox");
      expect(seen["directory"]).toBe("/workspace");
    });

    test("it sees process 1 and itself, and its keeper where it is in no group", () => {
      const isKept = bench.engine.missing.includes("cgroup");
      expect(seen["processes"]).toHaveLength(isKept ? 3 : 2);
      expect(seen["processes"]).toContain("1");
    });

    test("every namespace is its own", () => {
      for (const [name, target] of Object.entries(seen.namespaces)) {
        if (name.startsWith("time")) continue;
        expect([name, target]).not.toEqual([name, readlinkSync(`/proc/self/ns/${name}`)]);
      }
      for (const line of (seen["cgroup"] as string).trim().split("\n")) {
        if (/:(memory|cpu|):/.test(line)) expect(line).toMatch(OWN_GROUP);
      }
    });

    test("process 1 is out of reach", () => {
      expect(seen["init_namespace"]).toBe("Permission denied");
      expect(seen["init_memory"]).toBe("Permission denied");
      expect(seen["init_environment"]).toBe("Permission denied");
      // With the only id that a user may map it is allowed, and the kernel drops it.
      const isShared = bench.engine.missing.includes("identity");
      expect(seen["init_signal"]).toBe(isShared ? "done" : "Operation not permitted");
    });

    test("there is no network but a loopback that is down", () => {
      expect(seen["interfaces"]).toEqual(["lo"]);
      expect(seen["routes"]).toEqual([]);
      for (const way of ["loopback", "outside", "outside6"]) {
        expect(`${way}: ${seen[way]}`).toMatch(
          isFiltered ? /Address family not/ : /unreachable|Cannot assign requested address/,
        );
      }
      expect(seen["vsock"]).not.toBe("done");
      expect(seen["abstract"]).toEqual([]);
    });

    test("nothing is writable but the four places", () => {
      const places = ["/dev/shm", "/home/agent", "/tmp", "/workspace"];
      expect(seen["writable_directories"]).toEqual(places);
      expect(seen["writable_files"]).toEqual(["/workspace/main.py"]);
      expect(seen["writable_proc"]).toEqual([]);
      expect(seen["sysrq"]).not.toBe("done");
      expect(seen["kcore"]).toBe("masked");
    });

    test("the root holds what was put there and nothing else", () => {
      expect(seen["dev"]).toEqual([
        "fd",
        "full",
        "null",
        "ptmx",
        "pts",
        "random",
        "shm",
        "stderr",
        "stdin",
        "stdout",
        "tty",
        "urandom",
        "zero",
      ]);
      const etc = seen["etc"] as string[];
      for (const secret of ["shadow", "gshadow", "ssh", "machine-id", "resolv.conf", "fstab"]) {
        expect(etc).not.toContain(secret);
      }
      const top = seen["top"] as string[];
      for (const absent of ["root", "boot", "mnt", "media", "srv", "sys", ".data"]) {
        expect(top).not.toContain(absent);
      }
    });

    test("every mount is nosuid, and none can be written but the four, proc and its own terminals", () => {
      for (const line of (seen["mounts"] as string).trim().split("\n")) {
        const [, , , , target = "", options = ""] = line.split(" ");
        const flags = options.split(",");
        expect([target, flags.includes("nosuid")]).toEqual([target, true]);
        const isWritable = flags.includes("rw");
        const mayBe = [
          "/workspace",
          "/home/agent",
          "/tmp",
          "/dev/shm",
          "/proc",
          "/dev/pts",
        ].includes(target);
        expect([target, isWritable]).toEqual([target, mayBe]);
        if (!target.startsWith("/dev/") && !target.startsWith("/proc/")) {
          expect([target, flags.includes("nodev")]).toEqual([target, true]);
        }
      }
    });
  });
}

host.describe("from outside", () => {
  const bench = useEngine();

  requireHost({ ids: true }).test(
    "process 1, its program and another sandbox all have ids of their own",
    async () => {
      const leases = await Promise.all([bench.open(), bench.open()]);
      const execs = await Promise.all(
        leases.map((lease) =>
          lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV }),
        ),
      );
      await until("both programs run", () => pidsOfRange(ID_RANGE).length >= 4);
      const ids = pidsOfRange(ID_RANGE).map((pid) => uids(pid));
      expect(new Set(ids.map(([uid]) => uid)).size).toBe(4);
      for (const own of ids) expect(new Set(own).size).toBe(1);
      for (const pid of pidsOfRange(ID_RANGE)) expect(groupsOf(pid)).toBe("");
      for (const exec of execs) exec.kill("user");
      await Promise.all(leases.map((lease) => lease.release()));
    },
  );

  test("no capability counts on the host, not even of process 1", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({ executable: "sleep", arguments: ["1000"], variables: ENV });
    for (const pid of pidsOfRange(ID_RANGE)) {
      expect(readlinkSync(`/proc/${pid}/ns/user`)).not.toBe(readlinkSync("/proc/self/ns/user"));
    }
    exec.kill("user");
    await lease.release();
  });

  test("two sandboxes see nothing of each other", async () => {
    const [left, right] = await Promise.all([bench.open(), bench.open()]);
    await left.putFile("/tmp/mark", Buffer.from("left"));
    await left.putFile("/dev/shm/mark", Buffer.from("left"));
    const exec = await left.exec({
      executable: PYTHON,
      arguments: ["-c", "import os,time; print(os.getpid(), flush=True); time.sleep(1000)"],
      variables: { ...ENV, MARK: "left" },
    });
    const looked = await right.invoke({
      executable: "sh",
      arguments: [
        "-c",
        "ls /tmp /dev/shm; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep MARK; ls -d /proc/[0-9]* | wc -l",
      ],
    });
    expect(looked.stdout).not.toContain("mark");
    expect(looked.stdout).not.toContain("left");
    exec.kill("user");
    await finish(exec);
    await Promise.all([left.release(), right.release()]);
  });
});

function uids(pid: number): string[] {
  const line = /^Uid:\s+(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";
  return line.split(/\s+/);
}

function groupsOf(pid: number): string {
  return (
    /^Groups:[ \t]*(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]?.trim() ?? "?"
  );
}
