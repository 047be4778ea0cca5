/**
 * What a container must be started with, for each engine: the narrow option for each thing that it
 * takes away, never `privileged`. Sources: docker-run(1), podman-run(1), Kubernetes' SecurityContext,
 * containerd's cri configuration, lxc.container.conf(5), systemd-nspawn(1).
 */

import type { ContainerEngine, HostFacts } from "./host-facts.ts";

/** What a container can take away that sandboxes need. */
export type ContainerNeed =
  | "root"
  | "capabilities"
  | "filter"
  | "apparmor"
  | "selinux"
  | "proc"
  | "cgroup";

type Options = Readonly<Record<ContainerNeed, string>>;

/** What of a container decides its options. */
type Contained = Pick<HostFacts, "container" | "absentCapabilities"> & {
  readonly cgroup: Pick<HostFacts["cgroup"], "isUnified">;
};

/** Stands in an option for each capability, or for all of them between commas. */
const EACH = "%CAPABILITY";
const ALL = "%CAPABILITIES";

const DOCKER: Options = {
  root: "--user 0",
  capabilities: `--cap-add ${EACH}`,
  filter: "--security-opt seccomp=unconfined",
  apparmor: "--security-opt apparmor=unconfined",
  selinux: "--security-opt label=disable",
  proc: "--security-opt systempaths=unconfined",
  cgroup: "--cgroupns private --security-opt writable-cgroups=true",
};

const PODMAN: Options = {
  ...DOCKER,
  proc: "--security-opt 'unmask=/proc/*'",
  cgroup: "--cgroupns private --security-opt unmask=/sys/fs/cgroup",
};

/** Of v1 it mounts the groups read-only, and nothing unmasks them. */
const PODMAN_V1: Options = { ...PODMAN, cgroup: "--volume /sys/fs/cgroup:/sys/fs/cgroup:rw" };

const KUBERNETES: Options = {
  root: "runAsUser: 0",
  capabilities: `capabilities: { add: [${ALL}] }`,
  filter: "seccompProfile: { type: Unconfined }",
  apparmor: "appArmorProfile: { type: Unconfined }",
  selinux: "seLinuxOptions: { type: spc_t }",
  proc: "procMount: Unmasked",
  cgroup: "",
};

const LXC: Options = {
  root: "run it as root inside",
  capabilities: "lxc.cap.drop =",
  filter: "lxc.seccomp.profile =",
  apparmor: "lxc.include = /usr/share/lxc/config/nesting.conf",
  selinux: "lxc.selinux.context = unconfined_u:unconfined_r:unconfined_t:s0",
  proc: "lxc.include = /usr/share/lxc/config/nesting.conf",
  cgroup: "lxc.mount.auto = cgroup:rw",
};

const NSPAWN: Options = {
  root: "--user=root",
  capabilities: `--capability=CAP_${EACH}`,
  filter: "SYSTEMD_SECCOMP=0 in its environment",
  apparmor: "",
  selinux: "",
  proc: "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 in its environment",
  cgroup: "--property=Delegate=yes",
};

/** Where kubelet leaves a group that can be written: only by a runtime of its own. */
const KUBERNETES_CGROUP =
  "for control groups a runtime class of containerd 2.1 or newer with `cgroup_writable = true`";

/**
 * What to start this container with, for some needs.
 *
 * @returns null where there is no container, or none that is known
 */
export function containerFix(needs: readonly ContainerNeed[], facts: Contained): string | null {
  if (needs.length === 0) return null;
  const { container } = facts;
  const join = (options: Options, separator: string): string =>
    joinOptions(needs, { options, separator, names: facts.absentCapabilities });
  switch (container) {
    case "docker":
      return `docker run ${join(DOCKER, " ")}${note(needs, "cgroup", " (Docker 28, cgroup v2)")}`;
    case "podman":
      return `podman run ${join(facts.cgroup.isUnified ? PODMAN : PODMAN_V1, " ")}`;
    case "kubernetes":
      return kubernetesFix(needs, join(KUBERNETES, "\n  "));
    case "lxc":
      return `In the container's configuration (Incus: security.nesting=true; Proxmox: features nesting=1):\n${join(LXC, "\n")}`;
    case "nspawn":
      return `systemd-nspawn: ${join(NSPAWN, ", ")}`;
    case "other":
    case null:
      return null;
  }
}

function joinOptions(
  needs: readonly ContainerNeed[],
  how: {
    readonly options: Options;
    readonly separator: string;
    readonly names: readonly string[];
  },
): string {
  const { options, separator, names } = how;
  const texts = needs
    .flatMap((need) => {
      const option = options[need].replace(ALL, names.join(", "));
      return option.includes(EACH) ? names.map((name) => option.replace(EACH, name)) : [option];
    })
    .filter((text) => text !== "");
  return [...new Set(texts)].join(separator);
}

function note(needs: readonly ContainerNeed[], need: ContainerNeed, text: string): string {
  return needs.includes(need) ? text : "";
}

/** A pod with an unmasked /proc must have a user namespace of its own (KEP-4265). */
function kubernetesFix(needs: readonly ContainerNeed[], fields: string): string {
  const pod = needs.includes("proc")
    ? "hostUsers: false   # of the pod, which procMount needs\n"
    : "";
  const context = fields === "" ? "" : `${pod}securityContext:   # of the container\n  ${fields}`;
  const runtime = note(needs, "cgroup", KUBERNETES_CGROUP);
  return [context, runtime].filter((part) => part !== "").join("\n");
}

/**
 * Everything that this container takes away and a sandbox needs. A user's needs neither root nor
 * capabilities and does without groups: what those would add is told of `identity` and `cgroup`.
 */
export function containerNeeds(
  facts: HostFacts,
  { lacksCgroup }: { readonly lacksCgroup: boolean },
): readonly ContainerNeed[] {
  const { confinement } = facts;
  const isRoot = facts.uid === 0;
  return [
    ...(isRoot && facts.absentCapabilities.length > 0 ? (["capabilities"] as const) : []),
    ...(facts.isFiltered ? (["filter"] as const) : []),
    ...(confinement === null ? [] : [confinement.by]),
    ...(facts.procMasks.length > 0 ? (["proc"] as const) : []),
    ...(isRoot && lacksCgroup && !facts.cgroup.isWritable ? (["cgroup"] as const) : []),
  ];
}

/** How an engine is called in a sentence. */
export const ENGINE_NAMES: Readonly<Record<ContainerEngine, string>> = {
  docker: "Docker",
  podman: "Podman",
  kubernetes: "Kubernetes",
  lxc: "LXC",
  nspawn: "systemd-nspawn",
  other: "a container",
};
