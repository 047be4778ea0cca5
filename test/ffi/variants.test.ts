import { expect, test } from "bun:test";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { childEnv } from "./native.ts";
import { map } from "./sandbox.ts";

interface Probe {
  uid: string;
  gid: string;
  caps: number[];
  noNewPrivs: string;
  exit: number;
  id: string;
  nested: number;
  fds: string;
  unpacked: number;
  merged: number;
  packed: number;
  acpi: string;
  touch: string;
  mounts: string[];
  initFds: number | null;
  hostname: string;
  dumpable: number[];
}

/** One sandbox in a process of its own: probe.ts says what the arguments are. */
function probe(args: (string | number)[], uid?: number): Probe {
  const as =
    uid === undefined
      ? []
      : ["setpriv", "--reuid", `${uid}`, "--regid", `${uid}`, "--clear-groups"];
  const ran = Bun.spawnSync(
    [...as, process.execPath, join(import.meta.dir, "probe.ts"), ...args.map(String)],
    {
      env: { ...childEnv, HOME: "/tmp" },
      stderr: "pipe",
    },
  );
  expect(ran.stderr.toString()).toBe("");
  return JSON.parse(ran.stdout.toString()) as Probe;
}

function expectSandbox(found: Probe): void {
  const four = (id: number): string => Array(4).fill(id).join("\t");
  expect(found).toMatchObject({
    uid: four(1000),
    gid: four(1000),
    caps: [0, 0, 0, 0, 0],
    noNewPrivs: "1",
    exit: 7,
    id: "1000\n1000:1000\n1000:1000\n",
    fds: "0\n1\n2\n3\n",
    unpacked: 0,
    merged: 0,
    packed: 0,
    acpi: "",
    touch: "4",
    hostname: "sandbox",
  });
  // Three inert ones, control, report, and SIGCHLD.
  if (found.initFds !== null) expect(found.initFds).toBe(6);
  // The host's own flag is untouched, although the child changed ids in shared memory.
  expect(found.dumpable[1]).toBe(found.dumpable[0] as number);
  const flags = new Map(found.mounts.map((line) => line.split(" ") as [string, string]));
  expect(flags.get("/")).toBe("ro,nosuid,nodev");
  expect(flags.get("/usr")).toBe("ro,nosuid,nodev");
  expect(flags.get("/dev/null")).toBe("rw,nosuid,noexec");
  expect(flags.get("/proc/sys")).toBe("ro,nosuid,nodev,noexec");
  expect(flags.get("/dev-all")).toBe("ro,nosuid,nodev");
  expect(flags.get("/dev-all/pts")).toBe("ro,nosuid,nodev"); // the last line is the one on top
  expect(flags.get("/mnt\\040dir/x")).toBe("ro,nosuid,nodev,noexec");
}

requireHost({ root: true, userns: true, programs: ["unshare", "setpriv", "hostname"] }).describe(
  "a sandbox is the same",
  () => {
    test("with two mapped ids", () => {
      const found = probe([map.parent]);
      expectSandbox(found);
      expect(found.nested).not.toBe(0);
    }, 60_000);

    test("with one mapped id", () => expectSandbox(probe([map.self])), 60_000);

    test("without a user namespace", () => expectSandbox(probe([map.none])), 60_000);

    test("for an unprivileged server", () => {
      const nobody = 65_534;
      const found = probe([map.self], nobody);
      expectSandbox(found);
      expect(found.nested).not.toBe(0);
    }, 60_000);

    test("for a hardened server, privileged or not", () => {
      expectSandbox(probe([map.parent, "harden"]));
      expectSandbox(probe([map.self, "harden"], 65_534));
    }, 60_000);

    const numbers = {
      clone3: 435,
      closeRange: 436,
      openat2: 437,
      mountSetattr: 442,
      openTree: 428,
      moveMount: 429,
    };
    const { clone3, closeRange, openat2, mountSetattr, openTree, moveMount } = numbers;
    test.each<[string, (string | number)[]]>([
      ["clone3 (before 5.3)", [clone3]],
      ["close_range (before 5.9)", [closeRange]],
      ["close_range (EPERM from an outer filter)", ["eperm", closeRange]],
      ["openat2 (before 5.6)", [openat2]],
      ["mount_setattr (before 5.12)", [mountSetattr]],
      ["any of the newer calls", [clone3, closeRange, openat2, mountSetattr, openTree, moveMount]],
    ])("without %s", (_name, denied) => expectSandbox(probe([map.parent, ...denied])), 60_000);
  },
);
