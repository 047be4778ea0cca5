import { expect, test } from "bun:test";
import { namedGroup, parseHierarchies } from "../../../src/sandbox/cgroup-hierarchy.ts";

const V2 = "30 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

test("parseHierarchies() finds the own group on v2, in a container and out of it", () => {
  expect(parseHierarchies(V2, "0::/system.slice/cprg.service\n")).toEqual([
    {
      version: 2,
      controllers: [],
      mountPoint: "/sys/fs/cgroup",
      own: "/sys/fs/cgroup/system.slice/cprg.service",
    },
  ]);
  // A container without a cgroup namespace sees its own group as the root of the mount.
  const bound = V2.replace("0:27 / ", "0:27 /docker/abc ");
  expect(parseHierarchies(bound, "0::/docker/abc\n")[0]?.own).toBe("/sys/fs/cgroup");
  expect(parseHierarchies(bound, "0::/docker/abc/x\n")[0]?.own).toBe("/sys/fs/cgroup/x");
  // Neither a sibling whose name begins alike nor one above the namespace is within reach.
  expect(parseHierarchies(bound, "0::/docker/abcd\n")[0]?.own).toBeNull();
  expect(parseHierarchies(V2, "0::/../other\n")[0]?.own).toBeNull();
});

test("parseHierarchies() tells v1 hierarchies apart, joined and named ones too", () => {
  const mountinfo = [
    "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
    "34 30 0:31 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory",
    "39 30 0:36 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
    "40 30 0:37 / /mnt/with\\040space rw - cgroup2 cgroup2 rw",
    "41 30 0:38 / /tmp rw - tmpfs cgroup rw,memory",
    "",
  ].join("\n");
  const own = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/u\n";
  const found = parseHierarchies(mountinfo, own);
  expect(found.map(({ version, own: path }) => [version, path])).toEqual([
    [1, "/sys/fs/cgroup/cpu,cpuacct/c"],
    [1, "/sys/fs/cgroup/memory/a/b"],
    [1, "/sys/fs/cgroup/systemd"],
    [2, "/mnt/with space/u"],
  ]);
});

test("namedGroup() takes a name with or without the mount point", () => {
  const hierarchy = {
    version: 2,
    controllers: [],
    mountPoint: "/sys/fs/cgroup",
    own: null,
  } as const;
  for (const name of ["cprg.slice", "/cprg.slice", "/sys/fs/cgroup/cprg.slice"]) {
    expect(namedGroup(hierarchy, name)).toBe("/sys/fs/cgroup/cprg.slice");
  }
  const memory = { ...hierarchy, mountPoint: "/sys/fs/cgroup/memory" };
  expect(namedGroup(memory, "/sys/fs/cgroup/memory/x")).toBe("/sys/fs/cgroup/memory/x");
  expect(namedGroup(memory, "x/y")).toBe("/sys/fs/cgroup/memory/x/y");
});
