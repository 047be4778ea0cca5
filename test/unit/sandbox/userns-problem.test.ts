import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { CprgError } from "../../../src/core/errors.ts";
import { judgeHost, type RawHost } from "../../../src/sandbox/host-facts.ts";
import { stepError } from "../../../src/sandbox/steps.ts";
import {
  explainSetup,
  findProblem,
  readUsernsFacts,
  type UsernsFacts,
} from "../../../src/sandbox/userns-problem.ts";
import { HOSTS, type HostName } from "./captured-hosts.ts";

/** A captured host, with more of its files. */
function facts(name: HostName, files: RawHost["files"] = {}): UsernsFacts {
  const captured: RawHost = HOSTS[name];
  const host = judgeHost({ ...captured, uid: 1000, files: { ...captured.files, ...files } });
  return { mode: "rootless", host, hasUserNamespaces: true };
}

/** A host where nothing is in the way. */
const OPEN = facts("Fedora 42 user");
const DEBIAN_OFF = facts("Debian 10 user");
const UBUNTU_24_04 = facts("Ubuntu 24.04 user");
const HARDENED = facts("Rocky 9, no user namespaces");
const PODMAN = facts("Podman on Fedora");
const DOCKER = facts("Docker on Debian");
const POD = facts("Kubernetes");
const UNFILTERED = { "/proc/self/status": "Seccomp:\t0\n" };
/** Something else than an engine: a unit, or a sandbox of the desktop. */
const FILTERED = facts("Fedora 42 user", { "/proc/self/status": "Seccomp:\t2\n" });
const COVERED = facts("Alpine without cgroups", {
  "/proc/self/mountinfo": "610 600 0:60 / /proc/kcore ro - tmpfs tmpfs rw\n",
});
const AUTOFS = facts("Fedora 42 user", {
  "/proc/self/mountinfo": "31 23 0:28 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n",
});

describe("findProblem() names what forbids a user's sandbox", () => {
  const cases: readonly [string, UsernsFacts, string, string, string | null, string][] = [
    [
      "none allowed",
      HARDENED,
      "clone",
      "ENOSPC",
      "MAX_USER_NAMESPACES",
      "user.max_user_namespaces = 15000",
    ],
    [
      "all used up",
      OPEN,
      "clone",
      "ENOSPC",
      "MAX_USER_NAMESPACES",
      "user.max_user_namespaces = 15000",
    ],
    ["none allowed in ours", HARDENED, "capabilities", "ENOSPC", "MAX_USER_NAMESPACES", "sysctl"],
    [
      "Debian's switch",
      DEBIAN_OFF,
      "clone",
      "EPERM",
      "USERNS_CLONE_OFF",
      "unprivileged_userns_clone = 1",
    ],
    [
      "AppArmor at the clone",
      UBUNTU_24_04,
      "clone",
      "EACCES",
      "APPARMOR_USERNS",
      "/etc/apparmor.d/cprg",
    ],
    ["AppArmor at the map", UBUNTU_24_04, "id_map", "EPERM", "APPARMOR_USERNS", "userns,"],
    ["AppArmor at the mount", UBUNTU_24_04, "private", "EACCES", "APPARMOR_USERNS", "userns=0"],
    ["a covered /proc in podman", PODMAN, "mount", "EPERM", "PROC_MASKED", "unmask=/proc/*"],
    [
      "a covered /proc in docker",
      DOCKER,
      "mount",
      "EPERM",
      "PROC_MASKED",
      "systempaths=unconfined",
    ],
    ["a covered /proc in a pod", POD, "mount", "EPERM", "PROC_MASKED", "procMount: Unmasked"],
    ["docker's filter", DOCKER, "clone", "EPERM", "CONTAINER", "seccomp=unconfined"],
    [
      "docker's AppArmor",
      facts("Docker on Debian", UNFILTERED),
      "root_tmpfs",
      "EACCES",
      "CONTAINER",
      "apparmor=unconfined",
    ],
    [
      "a kernel without",
      { ...OPEN, hasUserNamespaces: false },
      "clone",
      "EINVAL",
      "NO_USERNS",
      "CONFIG_USER_NS",
    ],
    ["a filter of no engine's", FILTERED, "clone", "EPERM", "FILTERED", "SystemCallFilter="],
    ["a filter at a mount", FILTERED, "private", "EPERM", "FILTERED", "In the unit"],
    [
      "a filter and no systemd",
      facts("Alpine without cgroups", { "/proc/self/status": "Seccomp:\t2\n" }),
      "clone",
      "EPERM",
      "FILTERED",
      "Start it outside",
    ],
    [
      "a covered /proc and no engine",
      COVERED,
      "mount",
      "EPERM",
      "PROC_MASKED",
      "umount /proc/kcore",
    ],
    [
      "what systemd waits on in /proc covers nothing",
      AUTOFS,
      "mount",
      "EPERM",
      "USERNS_DENIED",
      "dmesg",
    ],
    ["a pod's filter", POD, "clone", "EPERM", "CONTAINER", "seccompProfile"],
    ["LXC", facts("LXC"), "clone", "EPERM", "CONTAINER", "lxc.seccomp.profile"],
    [
      "a limit around a container",
      facts("Docker on Debian", { "/proc/sys/user/max_user_namespaces": "0\n" }),
      "clone",
      "ENOSPC",
      "MAX_USER_NAMESPACES",
      "On the machine around",
    ],
    ["an unknown module", OPEN, "private", "EACCES", "USERNS_DENIED", "dmesg"],
    ["an unknown module at the clone", OPEN, "clone", "EPERM", "USERNS_DENIED", "dmesg"],
    ["no policy: a path that is not there", OPEN, "mount", "ENOENT", null, ""],
    ["no policy: a disk limit", OPEN, "mount", "ENOSPC", null, ""],
    ["no policy: too many processes", OPEN, "clone", "EAGAIN", null, ""],
    ["no policy: a step that needs no right", UBUNTU_24_04, "plan", "EPERM", null, ""],
  ];
  for (const [title, facts, step, errnoName, reason, hint] of cases) {
    test(title, () => {
      const problem = findProblem(facts, { step, index: 0, errnoName });
      expect(problem?.reason ?? null).toBe(reason);
      expect(problem?.hint ?? "").toContain(hint);
    });
  }
});

test("what is advised is for what is around the process", () => {
  const engines = /docker|podman|lxc|securityContext/i;
  for (const open of [OPEN, FILTERED, COVERED, AUTOFS, DEBIAN_OFF, HARDENED, UBUNTU_24_04]) {
    for (const step of ["clone", "id_map", "private", "mount", "pivot"]) {
      const problem = findProblem(open, { step, index: 0, errnoName: "EPERM" });
      expect(problem?.hint ?? "").not.toMatch(engines);
    }
  }
  const pod = findProblem(POD, { step: "clone", index: 0, errnoName: "EPERM" });
  expect(pod?.hint).not.toMatch(/docker|podman/);
});

test("explainSetup() keeps the step that failed, and what is no set-up as it is", () => {
  const failure = stepError({ step: 3, index: 0, errno: 1 }, { op: "start a sandbox" });
  const explained = explainSetup(failure, DEBIAN_OFF);
  expect(explained).toMatchObject({
    code: "failed_precondition",
    reason: "USERNS_CLONE_OFF",
    setup: { step: "clone", errnoName: "EPERM" },
    cause: failure,
  });
  expect((explained as CprgError).hint).toContain("--sandbox off");
  const other = new CprgError("unavailable", "no room");
  expect(explainSetup(other, DEBIAN_OFF)).toBe(other);
  const unknown = stepError({ step: 37, index: 4, errno: 2 }, { op: "build a sandbox" });
  expect(explainSetup(unknown, OPEN)).toBe(unknown);
});

describe("root is stopped by what is around it alone", () => {
  const root = (name: HostName, files: RawHost["files"] = {}): UsernsFacts => {
    const { host } = facts(name, files);
    return { mode: "ns", host: { ...host, uid: 0 }, hasUserNamespaces: true };
  };
  const DOCKER_ROOT = root("Docker on Debian");
  const cases: readonly [string, UsernsFacts, string, string | undefined, string | null, string][] =
    [
      ["a covered /proc", DOCKER_ROOT, "mount", "/proc", "PROC_MASKED", "systempaths=unconfined"],
      ["the filter, next", DOCKER_ROOT, "mount", "/proc", "PROC_MASKED", "seccomp=unconfined"],
      ["a container's filter", DOCKER_ROOT, "clone", undefined, "CONTAINER", "seccomp=unconfined"],
      [
        "a unit's filter",
        root("Arch, in a unit with a filter"),
        "clone",
        undefined,
        "FILTERED",
        "SystemCallFilter=",
      ],
      ["no policy: another mount", DOCKER_ROOT, "mount", "/srv/data", null, ""],
      ["no policy: no filter", root("Fedora 42 user", UNFILTERED), "clone", undefined, null, ""],
      ["no policy: a setting for users", root("Ubuntu 24.04 user"), "clone", undefined, null, ""],
    ];
  for (const [title, facts, step, subject, reason, hint] of cases) {
    test(title, () => {
      const failure = { step, index: 0, errnoName: "EPERM" };
      const problem = findProblem(facts, subject === undefined ? failure : { ...failure, subject });
      expect(problem?.reason ?? null).toBe(reason);
      expect(problem?.hint ?? "").toContain(hint);
    });
  }

  test("and is not told to run programs without a sandbox", () => {
    const failure = stepError({ step: 3, index: 0, errno: 1 }, { op: "start a sandbox" });
    const { hint } = explainSetup(failure, DOCKER_ROOT) as CprgError;
    expect(hint).toContain("docker run");
    expect(hint).not.toContain("--sandbox off");
  });
});

test("readUsernsFacts() reads this host", () => {
  const { hasUserNamespaces, host } = readUsernsFacts("rootless");
  expect(hasUserNamespaces).toBe(existsSync("/proc/sys/user/max_user_namespaces"));
  expect(host.userNamespaces.max).toBeGreaterThanOrEqual(0);
});
