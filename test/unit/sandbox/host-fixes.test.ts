// What is advised on hosts that were captured: the exact command, and nothing broader than needed.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { containerFix } from "../../../src/sandbox/container-fixes.ts";
import { installCommand, parseDistribution } from "../../../src/sandbox/distribution.ts";
import { judgeHost, type RawHost } from "../../../src/sandbox/host-facts.ts";
import { mendLayers } from "../../../src/sandbox/host-fixes.ts";
import type { HostLayer } from "../../../src/sandbox/host-layer.ts";
import { stepError } from "../../../src/sandbox/steps.ts";
import { HOSTS, type HostName } from "./captured-hosts.ts";

const ALL = ["capabilities", "identity", "cgroup", "cgroup.kill", "swap", "seccomp", "sandbox"];

/** Every layer that can be missing, with the general fix of host.ts. */
function mended(host: HostName, names: readonly string[] = ALL): Record<string, string | null> {
  const layers = names.map(
    (name): HostLayer => ({ name, ok: false, isRequired: true, detail: "", fix: null }),
  );
  const all = mendLayers(layers, judgeHost(HOSTS[host]));
  return Object.fromEntries(all.map(({ name, fix }) => [name, fix]));
}

test.each<[HostName, string, string | null]>([
  ["Debian 12, cgroup v1", "debian", null],
  ["Raspberry Pi OS", "debian", null],
  ["Ubuntu 24.04 user", "ubuntu", null],
  ["Fedora 42 user", "fedora", null],
  ["Rocky 9, no user namespaces", "rhel", null],
  ["Arch, in a unit with a filter", "arch", null],
  ["Alpine without cgroups", "alpine", null],
  ["NixOS", "nixos", null],
  ["openSUSE Leap", "suse", null],
  ["Docker on Debian", "debian", "docker"],
  ["Podman on Fedora", "alpine", "podman"],
  ["Podman on v1", "alpine", "podman"],
  ["Kubernetes", "debian", "kubernetes"],
  ["old Kubernetes", "debian", "kubernetes"],
  ["LXC", "ubuntu", "lxc"],
  ["systemd-nspawn", "debian", "nspawn"],
  ["unknown", "other", null],
])("%s is a %s host in %s", (name, family, container) => {
  const facts = judgeHost(HOSTS[name]);
  expect([facts.distribution.family as string, facts.container]).toEqual([family, container]);
});

test.each<[HostName, string, string | null]>([
  [
    "Debian 12, cgroup v1",
    "swap",
    `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX swapaccount=1"' > /etc/default/grub.d/90-cprg.cfg && update-grub, then reboot; or swapoff -a`,
  ],
  [
    "Debian 12, cgroup v1",
    "cgroup.kill",
    `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX systemd.unified_cgroup_hierarchy=1"' > /etc/default/grub.d/90-cprg.cfg && update-grub, then reboot`,
  ],
  [
    "Raspberry Pi OS",
    "cgroup",
    "append cgroup_enable=memory to the one line of /boot/firmware/cmdline.txt, then reboot",
  ],
  [
    "Debian 10 user",
    "identity",
    "echo 'kernel.unprivileged_userns_clone = 1' >> /etc/sysctl.d/90-cprg.conf && sysctl -p /etc/sysctl.d/90-cprg.conf",
  ],
  [
    "Ubuntu 24.04 user",
    "identity",
    `cat > /etc/apparmor.d/cprg <<'EOF'
abi <abi/4.0>,
include <tunables/global>
profile cprg "/usr/local/bin/cprg" flags=(unconfined) {
  userns,
}
EOF
apparmor_parser -r /etc/apparmor.d/cprg`,
  ],
  [
    "Fedora 42 user",
    "cgroup",
    `systemd-run --user --scope -p Delegate=yes cprg serve
Once, as root, for the CPU limit:
mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\\nDelegate=cpu memory pids\\n' > /etc/systemd/system/user@.service.d/cprg.conf
systemctl daemon-reload`,
  ],
  [
    "Fedora 42 user",
    "swap",
    `grubby --update-kernel=ALL --args="swapaccount=1", then reboot; or swapoff -a`,
  ],
  [
    "Rocky 9, no user namespaces",
    "identity",
    "echo 'user.max_user_namespaces = 15000' >> /etc/sysctl.d/90-cprg.conf && sysctl -p /etc/sysctl.d/90-cprg.conf",
  ],
  [
    "Rocky 9, no user namespaces",
    "cgroup",
    `By hand: systemd-run --scope -p Delegate=yes cprg serve
As a service, in the unit:
[Service]
Delegate=cpu memory pids
DelegateSubgroup=server`,
  ],
  [
    "Alpine without cgroups",
    "cgroup",
    `echo 'rc_cgroup_mode="unified"' >> /etc/rc.conf
rc-update add cgroups boot
rc-service cgroups restart`,
  ],
  ["Podman as a user", "identity", "podman run --user 0"],
  [
    "Podman as a user",
    "sandbox",
    "podman run --security-opt seccomp=unconfined --security-opt 'unmask=/proc/*'",
  ],
  ["Podman as a user", "cgroup", null],
  [
    "NixOS",
    "identity",
    `boot.kernel.sysctl."user.max_user_namespaces" = 15000; then nixos-rebuild switch`,
  ],
  [
    "NixOS",
    "swap",
    `boot.kernelParams = [ "swapaccount=1" ]; then nixos-rebuild boot, and reboot; or swapoff -a`,
  ],
  [
    "Docker on Debian",
    "sandbox",
    "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined --cgroupns private --security-opt writable-cgroups=true (Docker 28, cgroup v2)",
  ],
  ["Docker on Debian", "seccomp", "docker run --security-opt seccomp=unconfined"],
  ["Docker on Debian", "proc", "docker run --security-opt systempaths=unconfined"],
  ["Docker on Debian", "confinement", "docker run --security-opt apparmor=unconfined"],
  [
    "Podman on Fedora",
    "sandbox",
    "podman run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt label=disable --security-opt 'unmask=/proc/*' --cgroupns private --security-opt unmask=/sys/fs/cgroup",
  ],
  [
    "Podman on v1",
    "sandbox",
    "podman run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --volume /sys/fs/cgroup:/sys/fs/cgroup:rw",
  ],
  ["Podman on v1", "cgroup", "podman run --volume /sys/fs/cgroup:/sys/fs/cgroup:rw"],
  [
    "Podman on v1",
    "suid_dumpable",
    "On the machine around the container: echo 'fs.suid_dumpable = 0' >> /etc/sysctl.d/90-cprg.conf && sysctl -p /etc/sysctl.d/90-cprg.conf",
  ],
  [
    "Kubernetes",
    "sandbox",
    `hostUsers: false   # of the pod, which procMount needs
securityContext:   # of the container
  seccompProfile: { type: Unconfined }
  appArmorProfile: { type: Unconfined }
  procMount: Unmasked`,
  ],
  [
    "LXC",
    "sandbox",
    `In the container's configuration (Incus: security.nesting=true; Proxmox: features nesting=1):
lxc.cap.drop =
lxc.seccomp.profile =
lxc.include = /usr/share/lxc/config/nesting.conf
lxc.mount.auto = cgroup:rw`,
  ],
  ["Kubernetes", "identity", "securityContext:   # of the container\n  runAsUser: 0"],
  ["systemd-nspawn", "seccomp", "systemd-nspawn: SYSTEMD_SECCOMP=0 in its environment"],
])("on %s %s is mended by the exact command", (host, layer, fix) => {
  expect(mended(host)[layer]).toBe(fix);
});

test("in a unit with a filter the settings that make one are named", () => {
  const { seccomp } = mended("Arch, in a unit with a filter");
  expect(seccomp).toContain("SystemCallFilter=");
  expect(seccomp).not.toContain("docker");
});

test("nothing is ever mended by privileged, and every engine's advice is for that engine", () => {
  for (const name of Object.keys(HOSTS) as HostName[]) {
    for (const fix of Object.values(mended(name))) {
      expect(fix ?? "").not.toMatch(/--privileged|privileged: true/);
      if (fix?.includes("docker run")) expect(name).toStartWith("Docker");
      if (fix?.includes("podman run")) expect(name).toStartWith("Podman");
    }
  }
});

test("root in a pod needs capabilities and groups too, and is told so", () => {
  const layer = { name: "sandbox", ok: false, isRequired: true, detail: "", fix: null };
  const group = { ...layer, name: "cgroup" };
  const all = mendLayers([group, layer], judgeHost({ ...HOSTS.Kubernetes, uid: 0 }));
  const fix = all.find(({ name }) => name === "sandbox")?.fix;
  expect(fix).toContain("  capabilities: { add: [SETGID, SETUID, SYS_ADMIN] }\n");
  expect(fix).toContain("a runtime class of containerd 2.1 or newer with `cgroup_writable = true`");
});

test("a user who only shares the server's id is told to start it as root, where that differs", () => {
  expect(mended("Fedora 42 user")["identity"]).toBeNull();
  const captured = HOSTS["Alpine without cgroups"];
  const layer = { name: "identity", ok: false, isRequired: false, detail: "", fix: "sudo" };
  expect(mendLayers([layer], judgeHost({ ...captured, uid: 1000 }))[0]?.fix).toBe(
    "Start it as root (doas)",
  );
});

test("a capability that the server needs is in the container's fix, and no fix is empty", () => {
  const captured = HOSTS["Podman on v1"];
  const status = "CapEff:\t00000000002000c0\nSeccomp:\t0\n";
  const files = { ...captured.files, "/proc/self/status": status };
  const layer = { name: "capabilities", ok: false, isRequired: true, detail: "", fix: "Give it" };
  const facts = judgeHost({ ...captured, files }, ["CAP_DAC_OVERRIDE"]);
  expect(mendLayers([layer], facts)[0]?.fix).toBe("podman run --cap-add DAC_OVERRIDE");
});

test("only what is missing is asked for", () => {
  const captured = HOSTS["Docker on Debian"];
  const status = "CapEff:\t000001ffffffffff\nSeccomp:\t2\n";
  const facts = judgeHost({
    ...captured,
    files: { ...captured.files, "/proc/self/status": status },
  });
  const layer = { isRequired: true, detail: "", fix: null };
  const layers = [
    { ...layer, name: "capabilities", ok: true },
    { ...layer, name: "cgroup", ok: true },
    { ...layer, name: "sandbox", ok: false, fix: "See the log" },
  ];
  const all = mendLayers(layers, facts);
  expect(all.map(({ name }) => name)).toEqual([
    "capabilities",
    "cgroup",
    "proc",
    "confinement",
    "sandbox",
  ]);
  expect(all[0]).toEqual(layers[0] as HostLayer);
  expect(all.at(-1)?.fix).toBe(
    "See the log\ndocker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined",
  );
});

test("what keeps users from user namespaces is a layer, until a profile lets them or root asks", () => {
  const captured = HOSTS["Ubuntu 24.04 user"];
  const names = (change: Partial<RawHost>): string[] =>
    mendLayers([], judgeHost({ ...captured, ...change })).map(({ name }) => name);
  expect(names({})).toEqual(["userns"]);
  const allowed = { ...captured.files, "/proc/self/attr/current": "cprg (unconfined)\n" };
  expect(names({ files: allowed })).toEqual([]);
  expect(names({ uid: 0 })).toEqual([]);
  expect(mended("Ubuntu 24.04 user")["userns"]).toContain("/etc/apparmor.d/cprg");
  expect(mended("Debian 10 user")["userns"]).toContain("kernel.unprivileged_userns_clone = 1");
});

test("fs.suid_dumpable=1 is a layer of its own that nothing needs; 0 and 2 are none", () => {
  const captured = HOSTS["Debian 12, cgroup v1"];
  const layersFor = (value: string) =>
    mendLayers(
      [],
      judgeHost({
        ...captured,
        files: { ...captured.files, "/proc/sys/fs/suid_dumpable": value },
      }),
    );
  expect(layersFor("1\n")).toEqual([
    {
      name: "suid_dumpable",
      ok: false,
      isRequired: false,
      detail: expect.stringContaining("fs.suid_dumpable=1"),
      fix: "echo 'fs.suid_dumpable = 0' >> /etc/sysctl.d/90-cprg.conf && sysctl -p /etc/sysctl.d/90-cprg.conf",
    },
  ]);
  for (const value of ["0\n", "2\n", ""]) expect(layersFor(value)).toEqual([]);
});

test("a sandbox that may not be named asks for the filter to go, or for the capability", () => {
  const failure = { step: 40, index: 0, errno: 1 };
  const { message, hint } = stepError(failure, { op: "build a sandbox" });
  expect(message).toBe("Cannot build a sandbox: hostname: EPERM");
  expect(hint).toContain("--security-opt seccomp=unconfined");
  expect(hint).toContain("--cap-add SYS_ADMIN");
});

test("where masks over /proc are the cause nothing else is advised", () => {
  const layer = {
    name: "sandbox",
    ok: false,
    isRequired: true,
    detail: "Cannot run sandboxes: no /proc may be mounted, because a container covers parts",
    fix: "Check CPRG_BINDS",
  };
  const advised = (host: HostName) => mendLayers([layer], judgeHost(HOSTS[host])).at(-1)?.fix;
  expect(advised("Podman on Fedora")).toStartWith("podman run ");
  expect(advised("Fedora 42 user")).toBe("Check CPRG_BINDS");
});

test("a host that contains nothing gets no layer more, and unknown ones keep their own fix", () => {
  expect(Object.keys(mended("Fedora 42 user"))).toEqual(ALL);
  const layer = { name: "identity", ok: false, isRequired: true, detail: "", fix: "sudo" };
  expect(mendLayers([layer], judgeHost(HOSTS.unknown))).toEqual([layer]);
});

test.each([
  ["Debian 12, cgroup v1", "python", "apt-get install python3"],
  ["Fedora 42 user", "node", "dnf install nodejs"],
  ["Rocky 9, no user namespaces", "bash", "dnf install bash"],
  ["Arch, in a unit with a filter", "python", "pacman -S python"],
  ["Alpine without cgroups", "node", "apk add nodejs"],
  ["openSUSE Leap", "python", "zypper install python3"],
  ["unknown", "bash", "install the package bash"],
] as const)("on %s %s comes from %s", (host, interpreter, command) => {
  expect(installCommand(interpreter, judgeHost(HOSTS[host]).distribution)).toBe(command);
});

test("os-release is read as a shell would, and hostile text is nothing", () => {
  expect(parseDistribution("ID='debian'\nPRETTY_NAME=Deb\n")).toEqual({
    family: "debian",
    name: "Deb",
  });
  for (const text of ["", "ID=\n", "ID=__proto__\n", "ID=constructor\nID_LIKE=toString\n"]) {
    expect(parseDistribution(text)).toEqual({ family: "other", name: "Linux" });
  }
});

test("INSTALL.md names the same options", async () => {
  const install = await Bun.file(join(import.meta.dir, "../../../INSTALL.md")).text();
  const needs = ["capabilities", "filter", "apparmor", "selinux", "proc", "cgroup"] as const;
  for (const container of ["docker", "podman", "kubernetes"] as const) {
    for (const [need, isUnified] of needs.flatMap(
      (each) =>
        [
          [each, true],
          [each, false],
        ] as const,
    )) {
      const facts = { container, absentCapabilities: ["SYS_ADMIN"], cgroup: { isUnified } };
      const advice = containerFix([need], facts) ?? "";
      const options = advice.match(/--[\w-]+ (?:'[^']+'|[\w=/:-]+)|procMount: \w+|\w+: \{[^}]+\}/g);
      if (container === "kubernetes" && (need === "selinux" || need === "cgroup")) continue;
      expect(options?.length).toBeGreaterThan(0);
      for (const option of options ?? []) expect(install).toContain(option);
    }
  }
});
