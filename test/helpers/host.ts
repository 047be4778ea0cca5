// What a test needs from the machine. A need that is not met skips the test with a printed reason;
// under CPRG_TEST_MUST_RUN=1 it fails it, unless test/allowed-skips.json names the need.

import { describe, test } from "bun:test";
import { accessSync, constants, readFileSync } from "node:fs";
import { findCgroups } from "../../src/sandbox/cgroup-host.ts";
import { checkDelegated } from "../../src/sandbox/rootless.ts";
import allowedSkips from "../allowed-skips.json";

export interface HostNeeds {
  /** Runs on Linux. Every other need but `programs` implies it. */
  readonly linux?: boolean;
  /** Runs as uid 0. */
  readonly root?: boolean;
  /** May create user namespaces (user_namespaces(7)); tried out with unshare(1). */
  readonly userns?: boolean;
  /** Has a writable memory and pids controller (cgroups(7)): of one version, or of either. */
  readonly cgroup?: boolean | "v1" | "v2";
  /** Can run sandboxes: as root with control groups, or as a user with user namespaces. */
  readonly sandbox?: boolean;
  /** Sandboxes have ids of their own: a user may map no id but one (user_namespaces(7)). */
  readonly ids?: boolean;
  /** Sandboxes are in control groups: root's, or those that were delegated to this user. */
  readonly groups?: boolean;
  /** Programs that must be on the PATH. */
  readonly programs?: readonly string[];
}

export interface HostGate {
  /** The names of the needs that this machine does not meet, such as `cgroup`. */
  readonly missing: readonly string[];
  describe(title: string, body: () => void): void;
  test(title: string, body: () => void | Promise<void>, timeoutMs?: number): void;
}

/** Checks the needs now and returns `describe` and `test` that honour the result. */
export function requireHost(needs: HostNeeds): HostGate {
  const missing = findMissing(needs);
  if (missing.length === 0) {
    return { missing, describe, test };
  }
  const reason = `needs ${missing.join(", ")}`;
  if (mustRun() && !missing.every(isAllowedSkip)) {
    const fail = (): never => {
      throw new Error(`This machine lacks what the test ${reason}, and CPRG_TEST_MUST_RUN is set`);
    };
    return {
      missing,
      describe: (title) => describe(title, () => test(reason, fail)),
      test: (title) => test(title, fail),
    };
  }
  const announce = (title: string): string => {
    console.warn(`skipped: ${title}: ${reason}`);
    return `${title} [${reason}]`;
  };
  return {
    missing,
    describe: (title, body) => describe.skipIf(true)(announce(title), body),
    test: (title, body) => test.skipIf(true)(announce(title), body),
  };
}

function mustRun(): boolean {
  return process.env["CPRG_TEST_MUST_RUN"] === "1";
}

function isAllowedSkip(need: string): boolean {
  return Object.hasOwn(allowedSkips.needs, need);
}

function findMissing(needs: HostNeeds): string[] {
  const missing: string[] = [];
  const isLinuxNeeded = needs.linux || needs.root || needs.userns || needs.cgroup;
  if (isLinuxNeeded && process.platform !== "linux") missing.push("linux");
  if (needs.root && process.getuid?.() !== 0) missing.push("root");
  if (needs.userns && !canCreateUserNamespace()) missing.push("userns");
  missing.push(...findMissingCgroup(needs.cgroup));
  missing.push(...findMissingSandbox(needs));
  for (const program of needs.programs ?? []) {
    if (Bun.which(program) === null) missing.push(program);
  }
  return missing;
}

function findMissingCgroup(need: HostNeeds["cgroup"]): string[] {
  if (need === "v1") return hasCgroupV1() ? [] : ["cgroup-v1"];
  if (need === "v2") return hasCgroupV2() ? [] : ["cgroup-v2"];
  return need !== true || hasCgroupV2() || hasCgroupV1() ? [] : ["cgroup"];
}

function findMissingSandbox({ sandbox, ids, groups }: HostNeeds): string[] {
  const isRoot = process.getuid?.() === 0;
  const missing: string[] = [];
  if (sandbox && !canCreateUserNamespace()) missing.push("userns");
  if (sandbox && isRoot && !hasCgroupV2() && !hasCgroupV1()) missing.push("cgroup");
  if (ids && !isRoot) missing.push("host-ids");
  if (groups && !isRoot && !isGroupDelegated()) missing.push("delegated-cgroup");
  return missing;
}

/** As the engine judges it. */
function isGroupDelegated(): boolean {
  try {
    checkDelegated(findCgroups());
    return true;
  } catch {
    // None, or none of this user's.
    return false;
  }
}

function canCreateUserNamespace(): boolean {
  if (Bun.which("unshare") === null) return false;
  const probe = Bun.spawnSync(["unshare", "--user", "--map-root-user", "true"]);
  return probe.exitCode === 0;
}

function hasCgroupV2(): boolean {
  const root = "/sys/fs/cgroup";
  const controllers = readWords(`${root}/cgroup.controllers`);
  return controllers.includes("memory") && controllers.includes("pids") && isWritable(root);
}

function hasCgroupV1(): boolean {
  return isWritable("/sys/fs/cgroup/memory") && isWritable("/sys/fs/cgroup/pids");
}

function readWords(path: string): string[] {
  try {
    return readFileSync(path, "utf8").trim().split(/\s+/);
  } catch {
    // Absent where the hierarchy is not mounted: no words.
    return [];
  }
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    // Absent or read-only: either way, not writable.
    return false;
  }
}
