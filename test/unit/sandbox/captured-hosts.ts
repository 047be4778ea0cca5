// Hosts as their files tell them, for the tests of what is advised on each. Only what differs from a
// plain root on a systemd machine with cgroup v2 is said.

import type { RawHost } from "../../../src/sandbox/host-facts.ts";

interface Capture {
  readonly osRelease: string;
  readonly files?: RawHost["files"];
  readonly paths?: readonly string[];
  readonly uid?: number;
}

const UNIFIED =
  "26 21 0:24 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
/** What engines mount over a container's /proc and cgroups (runtime-spec: maskedPaths, readonlyPaths). */
const CONTAINED = `600 599 0:60 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
610 600 0:60 /bus /proc/bus ro,nosuid,nodev,noexec,relatime - proc proc rw
611 600 0:60 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw
612 600 0:61 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
620 605 0:25 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw
`;
const SYSTEMD = ["/run/systemd/system", "/sys/fs/cgroup/cgroup.controllers"];
/** What Docker and Podman leave root: SETUID and SETGID, not SYS_ADMIN. */
const FILTERED = "Name:\tcprg\nCapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
const UNFILTERED = "Name:\tcprg\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
const NOBODY = "Name:\tcprg\nCapEff:\t0000000000000000\nSeccomp:\t2\n";

function capture({ osRelease, files = {}, paths = SYSTEMD, uid = 0 }: Capture): RawHost {
  return {
    files: {
      "/etc/os-release": osRelease,
      "/proc/self/status": UNFILTERED,
      "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
      "/proc/self/mountinfo": UNIFIED,
      "/proc/self/attr/current": "unconfined\n",
      "/proc/sys/user/max_user_namespaces": "63312\n",
      ...files,
    },
    paths,
    uid,
    executable: "/usr/local/bin/cprg",
  };
}

const DEBIAN = `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
ID=debian
`;
const UBUNTU = `PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
ID=ubuntu
ID_LIKE=debian
`;
const FEDORA = `NAME="Fedora Linux"
ID=fedora
PRETTY_NAME="Fedora Linux 42 (Server Edition)"
`;
const ROCKY = `NAME="Rocky Linux"
ID="rocky"
ID_LIKE="rhel centos fedora"
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
`;
const ALPINE = 'NAME="Alpine Linux"\nID=alpine\nPRETTY_NAME="Alpine Linux v3.22"\n';

/** By name. */
export const HOSTS = {
  "Debian 12, cgroup v1": capture({
    osRelease: DEBIAN,
    paths: ["/run/systemd/system"],
    files: {
      "/proc/self/mountinfo":
        "30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec - cgroup cgroup rw,memory\n",
    },
  }),
  "Raspberry Pi OS": capture({
    osRelease: DEBIAN,
    paths: [...SYSTEMD, "/boot/firmware/cmdline.txt"],
    files: { "/proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t60\t0\n" },
  }),
  "Debian 10 user": capture({
    osRelease: DEBIAN,
    uid: 1000,
    files: { "/proc/sys/kernel/unprivileged_userns_clone": "0\n" },
  }),
  "Ubuntu 24.04 user": capture({
    osRelease: UBUNTU,
    uid: 1000,
    files: { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n" },
  }),
  "Fedora 42 user": capture({ osRelease: FEDORA, uid: 1000 }),
  "Rocky 9, no user namespaces": capture({
    osRelease: ROCKY,
    files: { "/proc/sys/user/max_user_namespaces": "0\n" },
  }),
  "Arch, in a unit with a filter": capture({
    osRelease: 'NAME="Arch Linux"\nPRETTY_NAME="Arch Linux"\nID=arch\n',
    files: { "/proc/self/status": FILTERED },
  }),
  "Alpine without cgroups": capture({
    osRelease: ALPINE,
    paths: ["/run/openrc"],
    files: { "/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" },
  }),
  NixOS: capture({
    osRelease: 'NAME=NixOS\nID=nixos\nPRETTY_NAME="NixOS 25.05 (Warbler)"\n',
    files: { "/proc/sys/user/max_user_namespaces": "0\n" },
  }),
  "openSUSE Leap": capture({
    osRelease:
      'NAME="openSUSE Leap"\nID="opensuse-leap"\nID_LIKE="suse opensuse"\nPRETTY_NAME="openSUSE Leap 15.6"\n',
  }),
  "Docker on Debian": capture({
    osRelease: DEBIAN,
    paths: ["/.dockerenv", "/sys/fs/cgroup/cgroup.controllers"],
    files: {
      "/proc/self/status": FILTERED,
      "/proc/self/cgroup": "0::/\n",
      "/proc/self/mountinfo": CONTAINED,
      "/proc/self/attr/current": "docker-default (enforce)\n",
    },
  }),
  "Podman on Fedora": capture({
    osRelease: ALPINE,
    paths: ["/run/.containerenv", "/sys/fs/cgroup/cgroup.controllers"],
    files: {
      "/proc/self/status": FILTERED,
      "/proc/self/cgroup": "0::/\n",
      "/proc/self/mountinfo": CONTAINED,
      "/proc/self/attr/current": "system_u:system_r:container_t:s0:c57,c908\0",
      "/proc/1/environ": "PATH=/usr/bin\0container=podman\0HOME=/root\0",
    },
  }),
  "Podman on v1": capture({
    osRelease: ALPINE,
    paths: ["/run/.containerenv"],
    files: {
      "/proc/self/status": FILTERED,
      "/proc/self/mountinfo": "620 605 0:25 / /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw\n",
      "/proc/1/environ": "container=podman\0",
      "/proc/sys/fs/suid_dumpable": "1\n",
    },
  }),
  "Podman as a user": capture({
    osRelease: DEBIAN,
    uid: 1000,
    paths: ["/run/.containerenv"],
    files: { "/proc/self/status": NOBODY, "/proc/self/mountinfo": CONTAINED },
  }),
  Kubernetes: capture({
    osRelease: DEBIAN,
    uid: 1001,
    paths: ["/var/run/secrets/kubernetes.io", "/sys/fs/cgroup/cgroup.controllers"],
    files: {
      "/proc/self/status": NOBODY,
      "/proc/self/cgroup": "0::/\n",
      "/proc/self/mountinfo": CONTAINED,
      "/proc/self/attr/current": "cri-containerd.apparmor.d (enforce)\n",
    },
  }),
  "old Kubernetes": capture({
    osRelease: DEBIAN,
    paths: [],
    files: { "/proc/self/cgroup": "4:memory:/kubepods/burstable/pod1/2\n" },
  }),
  LXC: capture({
    osRelease: UBUNTU,
    files: {
      "/proc/self/status": FILTERED,
      "/proc/self/mountinfo": CONTAINED,
      "/run/systemd/container": "lxc\n",
      "/proc/self/attr/current": "lxc-container-default-cgns (enforce)\n",
    },
  }),
  "systemd-nspawn": capture({
    osRelease: DEBIAN,
    files: {
      "/proc/self/status": FILTERED,
      "/proc/1/environ": "container=systemd-nspawn\0container_uuid=1\0",
    },
  }),
  unknown: capture({ osRelease: "", paths: [] }),
} satisfies Readonly<Record<string, RawHost>>;

/** Name of a captured host. */
export type HostName = keyof typeof HOSTS;
