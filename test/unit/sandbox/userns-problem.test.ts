import { describe, expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { stepError } from "../../../src/sandbox/steps.ts";
import {
  explainRootless,
  findProblem,
  readUsernsFacts,
  type UsernsFacts,
} from "../../../src/sandbox/userns-problem.ts";

/** A host where nothing is in the way. */
const OPEN: UsernsFacts = {
  maxUserNamespaces: 96_364,
  unprivilegedClone: null,
  apparmorRestrict: null,
  container: null,
  isProcMasked: false,
  isFiltered: false,
};

const DEBIAN_OFF: UsernsFacts = { ...OPEN, unprivilegedClone: 0 };
const UBUNTU_24_04: UsernsFacts = { ...OPEN, unprivilegedClone: 1, apparmorRestrict: 1 };
const HARDENED: UsernsFacts = { ...OPEN, maxUserNamespaces: 0 };
const PODMAN: UsernsFacts = { ...OPEN, container: "podman", isProcMasked: true, isFiltered: true };
const DOCKER: UsernsFacts = { ...PODMAN, container: "docker" };
const POD: UsernsFacts = { ...PODMAN, container: "other" };

describe("findProblem() names what forbids a user's sandbox", () => {
  const cases: readonly [string, UsernsFacts, string, string, string | null, string][] = [
    [
      "none allowed",
      HARDENED,
      "clone",
      "ENOSPC",
      "MAX_USER_NAMESPACES",
      "user.max_user_namespaces=10000",
    ],
    [
      "all used up",
      OPEN,
      "clone",
      "ENOSPC",
      "MAX_USER_NAMESPACES",
      "user.max_user_namespaces=10000",
    ],
    ["none allowed in ours", HARDENED, "capabilities", "ENOSPC", "MAX_USER_NAMESPACES", "sysctl"],
    [
      "Debian's switch",
      DEBIAN_OFF,
      "clone",
      "EPERM",
      "USERNS_CLONE_OFF",
      "unprivileged_userns_clone=1",
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
    ["a covered /proc in podman", PODMAN, "mount", "EPERM", "PROC_MASKED", "unmask=ALL"],
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
      { ...DOCKER, isFiltered: false },
      "root_tmpfs",
      "EACCES",
      "CONTAINER",
      "apparmor=unconfined",
    ],
    [
      "a kernel without",
      { ...OPEN, maxUserNamespaces: null },
      "clone",
      "EINVAL",
      "NO_USERNS",
      "CONFIG_USER_NS",
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

test("explainRootless() keeps the step that failed, and what is no set-up as it is", () => {
  const failure = stepError({ step: 3, index: 0, errno: 1 }, { op: "start a sandbox" });
  const explained = explainRootless(failure, DEBIAN_OFF);
  expect(explained).toMatchObject({
    code: "failed_precondition",
    reason: "USERNS_CLONE_OFF",
    setup: { step: "clone", errnoName: "EPERM" },
    cause: failure,
  });
  expect((explained as CprgError).hint).toContain("--sandbox off");
  const other = new CprgError("unavailable", "no room");
  expect(explainRootless(other, DEBIAN_OFF)).toBe(other);
  const unknown = stepError({ step: 37, index: 4, errno: 2 }, { op: "build a sandbox" });
  expect(explainRootless(unknown, OPEN)).toBe(unknown);
});

test("readUsernsFacts() reads this host", () => {
  const facts = readUsernsFacts();
  expect(facts.maxUserNamespaces === null || facts.maxUserNamespaces >= 0).toBe(true);
  expect([null, "docker", "podman", "other"]).toContain(facts.container);
});
