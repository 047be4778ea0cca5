// Every judge refuses what a broken layer would show: for each attack one sighting of its success.

import { expect, test } from "bun:test";
import type { Attack, Seen } from "../../../src/attack/attack.ts";
import { ATTACK_LAYERS } from "../../../src/attack/attack.ts";
import { ATTACKS } from "../../../src/attack/suite.ts";
import { DEFAULT_LIMITS } from "../../../src/core/limits.ts";
import type { Outcome } from "../../../src/core/outcome.ts";

const outcome: Outcome = {
  exitCode: 0,
  signal: null,
  reason: "exit",
  limitsHit: [],
  violations: [],
  usage: { cpu_ms: 1, memory_peak_bytes: 1, pids_peak: 1 },
  durationMs: 1,
  killed: 0,
};

interface Sighting {
  readonly report?: unknown;
  readonly after?: unknown;
  readonly watched?: unknown;
  readonly stdout?: string;
  readonly outcome?: Partial<Outcome>;
  readonly connections?: number;
  readonly damage?: readonly string[];
  readonly received?: Seen["received"];
}

function sight(sighting: Sighting): Seen {
  const stage = {
    engine: { layers: { seccomp: "notify", identity: true }, instance: "i" },
    token: "token",
    canaries: ["/tmp/canary"],
    canaryDamage: () => sighting.damage ?? [],
    listeners: {
      port: 1,
      path: "",
      abstractName: "",
      connections: () => sighting.connections ?? 0,
    },
  };
  return {
    stage,
    limits: DEFAULT_LIMITS,
    outcome: { ...outcome, ...sighting.outcome },
    notices: [],
    stdout: sighting.stdout ?? "",
    stderr: "",
    received: sighting.received ?? { stdout: 0, stderr: 0 },
    watched: sighting.watched,
    after: "",
    report: () => sighting.report ?? {},
    reportAfter: () => sighting.after ?? {},
  } as unknown as Seen;
}

const self = { pid: process.pid, parent: 1, startTime: "?" };
const noLimit = { memoryBytes: null, pids: null, cpuCores: null, swapBytes: null };
const member = { pid: 7, places: ["/x"], isMember: false, limits: noLimit };

/** By id, what the attack's success looks like; several where there are several ways. */
const SUCCESSES: Readonly<Record<string, readonly Sighting[]>> = {
  "root.walk": [{ report: { found: ["/srv/x"], files: 99 } }, { report: { found: [], files: 0 } }],
  "root.reach": [
    { report: { done: ["read /tmp/canary"], tried: 1 } },
    { report: { done: [], tried: 1 }, damage: ["/tmp/canary"] },
  ],
  "root.write": [
    { report: { writable: ["/etc", "/tmp"], opened: [], directories: 1 } },
    { report: { writable: [], opened: ["/dev/mem"], directories: 1 } },
  ],
  "root.mounts": [
    { watched: { mounts: "1 1 0:1 / /usr rw,nosuid,nodev - x", ours: "a", theirs: "b" } },
    { watched: { mounts: "1 1 0:1 / /usr ro,nodev - x", ours: "a", theirs: "b" } },
    { watched: { mounts: "1 1 0:1 / /usr ro,nosuid - x", ours: "a", theirs: "b" } },
    { watched: { mounts: "1 1 0:1 / /tmp rw,nosuid,nodev - x", ours: "a", theirs: "a" } },
  ],
  "root.proc": [
    { report: { read: { kcore: 64 }, present: [] } },
    { report: { read: {}, present: ["/sys"] } },
  ],
  "root.devices": [{ report: { made: ["mem"] } }],
  "root.artifacts": [
    { watched: { paths: ["honest", "link"], content: "honesttoken" } },
    { watched: { paths: ["link"], content: "" } },
    { watched: { paths: [], content: "" } },
  ],
  "root.transfers": [
    { watched: { done: 9, leaked: ["out/canary"] } },
    { watched: { done: 9, leaked: [] }, damage: ["/tmp/canary"] },
    { watched: { done: 0, leaked: [] } },
  ],
  "root.leave": [
    {
      report: { left: ["/dev/shm", "/home/agent", "/tmp", "/workspace"] },
      after: { found: ["/tmp"] },
    },
  ],
  "root.executable": [{ report: { done: 1 } }, { report: { done: 0 }, watched: "other" }],
  "identity.rights": [
    { watched: [] },
    { watched: [{ CapEff: "0000000000000001", NoNewPrivs: "1", Groups: "" }] },
  ],
  "identity.ids": [
    {
      watched: {
        init: ["5", "5"],
        programs: [["6", "6"]],
        neighbours: [["6", "7"]],
      },
    },
    { watched: { init: ["0", "5"], programs: [["6", "6"]], neighbours: [["7", "7"]] } },
  ],
  "identity.become": [{ report: { setuid: 0 }, watched: [] }],
  "identity.setuid-file": [{ report: { copies: [true, false], own: 1 } }],
  "identity.init": [
    { report: { kill: 0 }, watched: true },
    { report: {}, watched: false },
  ],
  "identity.neighbour": [
    { watched: { alive: 0, all: 1, isInitAlive: true } },
    { watched: { alive: 1, all: 1, isInitAlive: false } },
  ],
  "namespaces.own": [
    { watched: [{ kind: "net", links: ["a", "a", "b"] }] },
    { watched: [{ kind: "net", links: ["a", "b", "b"] }] },
    { watched: [{ kind: "net", links: ["a", null, "b"] }] },
  ],
  "namespaces.user": [{ watched: ["a", "a"] }],
  "namespaces.processes": [
    { report: { pids: [4], hidden: [] } },
    { report: { pids: [], hidden: [4] } },
  ],
  "namespaces.names": [
    { report: { name: "host", set: -1 } },
    { report: { name: "sandbox", set: 0 } },
  ],
  "namespaces.ipc": [
    { report: { there: [0, 0, 0] }, watched: ["shm"] },
    { report: { there: [9, 0, 0] }, watched: [] },
  ],
  "namespaces.sockets": [
    { report: { path: 0, abstract: -1, seen: 0 } },
    { report: { path: -1, abstract: 0, seen: 0 } },
    { report: { path: -1, abstract: -1, seen: 3 } },
    { report: { path: -1, abstract: -1, seen: 0 }, connections: 1 },
  ],
  "cgroup.members": [{ watched: [] }, { watched: [member, member, member, member] }],
  "cgroup.values": [{ watched: [] }, { watched: [member] }],
  "cgroup.escape": [
    { report: { done: ["/sys/fs/cgroup/cgroup.procs"] }, watched: [] },
    { report: { done: [] }, watched: [member] },
  ],
  "rlimits.set": [
    { watched: { limits: [], init: "" } },
    { watched: { limits: [{ "Max file size": Number.POSITIVE_INFINITY }], init: "" } },
  ],
  "rlimits.raise": [{ report: { raised: [7] }, watched: { limits: [], init: "" } }],
  "rlimits.init": [
    { report: { result: 0 }, watched: { init: "Max cpu time   unlimited unlimited seconds" } },
    { report: { result: -1 }, watched: { init: "Max cpu time   1   1   seconds" } },
  ],
  "seccomp.sockets": [{ report: { netlink: 3 } }],
  "seccomp.tiocsti": [{ report: { plain: -1, high: -25 } }],
  "seccomp.clone3": [{ report: { result: -22 } }],
  "seccomp.int80": [
    { stdout: "MAPPED\nRETURNED 1\n" },
    { stdout: "" },
    { stdout: "MAPPED\n", outcome: { reason: "exit" } },
  ],
  "seccomp.x32": [{ stdout: "RETURNED 5\n" }, { outcome: { signal: "SIGSEGV" } }],
  "seccomp.child": [{ stdout: "RETURNED 0\n" }, { stdout: "WENT ON\n" }],
  "seccomp.lease": [{ after: {} }],
  "seccomp.forged": [
    {
      outcome: { reason: "seccomp_violation", violations: [{ type: "seccomp_violation" }] },
    },
  ],
  "seccomp.state": [
    { report: { off: -1, own: -1 }, watched: ["0"] },
    { report: { off: -1, own: -1 }, watched: [] },
    { report: { off: 0, own: -1 }, watched: ["2"] },
  ],
  "descriptors.three": [
    { watched: null },
    { watched: { 0: "pipe:[1]", 1: "pipe:[1]", 2: "pipe:[1]", 3: "pipe:[2]" } },
    { watched: { 0: "socket:[1]", 1: "pipe:[1]", 2: "pipe:[1]" } },
  ],
  "descriptors.inherited": [{ report: { reached: ["/proc/self/fd/7"] } }],
  "descriptors.init": [{ report: { reached: ["list"] } }],
  "environment.variables": [{ watched: null }, { watched: "HOME=/home/agent\0SECRET=x\0" }],
  "environment.init": [{ watched: { environment: "A=b\0", words: "init" } }],
  "environment.signals": [{ watched: { SigBlk: "0000000000000001" } }, { watched: {} }],
  "network.devices": [
    { watched: { devices: null } },
    { watched: { devices: "a\nb\n lo: 0\neth0: 0\n", addresses: "", routes: "", table: "" } },
    { watched: { devices: "a\nb\n lo: 0\n", addresses: "", routes: "", table: "|-- 127.0.0.1" } },
    { watched: { devices: "a\nb\n lo: 0\n", addresses: "fe80", routes: "", table: "" } },
  ],
  "network.loopback": [{ report: { raw: "done" } }, { report: {}, connections: 1 }],
  "network.beyond": [{ report: { done: ["8.8.8.8"] } }],
  "network.families": [{ report: { opened: ["2/1/0"] } }],
  "termination.busy": [{ outcome: { reason: "exit" } }],
  "termination.deaf": [{ outcome: { reason: "exit" } }],
  "termination.stopped": [{ outcome: { reason: "exit" } }],
  "termination.children": [{ watched: 51 }, { watched: 3, outcome: { reason: "user" } }],
  "termination.daemon": [{ outcome: { killed: 0 } }, { outcome: { reason: "wall_limit" } }],
  "termination.forking": [{ outcome: { reason: "exit" } }],
  "termination.rest": [{ outcome: { reason: "user" }, after: {} }],
  "termination.release": [{ watched: { programs: [], init: self, groups: ["/proc/self"] } }],
  "limits.memory": [
    { outcome: { reason: "exit" } },
    {
      outcome: {
        reason: "oom",
        usage: { cpu_ms: 1, memory_peak_bytes: 2 ** 30, pids_peak: 1 },
      },
    },
  ],
  "limits.forged": [{ outcome: { reason: "oom" } }],
  "limits.tmpfs": [{ report: { written: 2 ** 30 } }],
  "limits.inodes": [{ report: { made: 100_000 } }],
  "limits.file": [{ report: { size: 2 ** 30 } }],
  "limits.descriptors": [{ report: { open: 100_000 } }],
  "limits.processes": [{ watched: 400 }, { watched: 10 }],
  "limits.wall": [{ outcome: { reason: "exit" } }, { outcome: { reason: "wall_limit" } }],
  "limits.cpu": [{ outcome: { reason: "exit" } }, { outcome: { reason: "wall_limit" } }],
  "limits.output": [
    { received: { stdout: 2 ** 30, stderr: 0 } },
    { received: { stdout: 1, stderr: 1 } },
  ],
};

/** A trapped call that returned, that ended otherwise, or that was named wrongly. */
const TRAPPED: readonly Sighting[] = [
  { stdout: "RETURNED -1\n" },
  { outcome: { reason: "signal" } },
  {
    outcome: {
      reason: "seccomp_violation",
      violations: [{ type: "seccomp_violation", syscall: "getpid" }],
    },
  },
];

function successesOf({ id, layer }: Attack): readonly Sighting[] {
  const own = SUCCESSES[id];
  if (own !== undefined) return own;
  if (layer === "seccomp") return TRAPPED;
  throw new Error(`${id} has no sighting`);
}

test.each(ATTACKS.map((attack) => [attack.id, attack] as const))("%s is found out", (_, attack) => {
  for (const success of successesOf(attack)) {
    expect(attack.judge(sight(success))).toMatchObject({ held: false });
  }
});

test("every layer is attacked, ids are unique and begin with their layer", () => {
  expect([...new Set(ATTACKS.map(({ layer }) => layer))]).toEqual([...ATTACK_LAYERS]);
  const ids = ATTACKS.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const { id, layer } of ATTACKS) expect(id).toStartWith(`${layer}.`);
  const isHere = (id: string): boolean =>
    process.arch === "x64" || !["seccomp.int80", "seccomp.x32"].includes(id);
  expect(Object.keys(SUCCESSES).filter((id) => isHere(id) && !ids.includes(id))).toEqual([]);
});
