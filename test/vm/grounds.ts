// The grounds that the sandbox suite is run on: the same test ids on each.

/** What a ground is. */
export interface Ground {
  readonly name: string;
  readonly describes: string;
  /** On the machine itself, or on a kernel of Debian's that QEMU emulates. */
  readonly place: "here" | "vm";
  readonly arch: "x86_64" | "aarch64";
  readonly user: "root" | "user";
  /** What a virtual machine mounts at /sys/fs/cgroup; a machine of one's own has what it has. */
  readonly cgroup: "v1" | "v2" | "own";
  /** Needs (test/helpers/host.ts) that its kernel cannot meet, and why: what a skip may name. */
  readonly lacks: Readonly<Record<string, string>>;
  /** Test files that are run there where not all are; `executable` is dist/cprg itself. */
  readonly files?: readonly string[];
}

/** What no kernel gives a user. */
const USER_LACKS = {
  "host-ids": "a user may map no id but their own (user_namespaces(7))",
};
const V2_LACKS = {
  "cgroup-v1": "a controller is in one hierarchy only, and all are in that of cgroup v2",
};

/** Every ground, the cheap ones first. */
export const GROUNDS: readonly Ground[] = [
  {
    name: "here-root",
    describes: "this machine, as root",
    place: "here",
    arch: "x86_64",
    user: "root",
    cgroup: "own",
    lacks: {},
  },
  {
    name: "here-user",
    describes: "this machine, as an unprivileged user",
    place: "here",
    arch: "x86_64",
    user: "user",
    cgroup: "own",
    lacks: {
      ...USER_LACKS,
      "cgroup-v1": "groups of cgroup v1 are not delegated to users (cgroups(7))",
      "delegated-cgroup": "groups of cgroup v1 are not delegated to users (cgroups(7))",
    },
  },
  {
    name: "v2-root",
    describes: "cgroup v2, as root",
    place: "vm",
    arch: "x86_64",
    user: "root",
    cgroup: "v2",
    lacks: V2_LACKS,
  },
  {
    name: "v2-user",
    describes: "cgroup v2, as an unprivileged user with a delegated group",
    place: "vm",
    arch: "x86_64",
    user: "user",
    cgroup: "v2",
    lacks: { ...V2_LACKS, ...USER_LACKS },
  },
  {
    name: "v1-root",
    describes: "cgroup v1 alone, as root",
    place: "vm",
    arch: "x86_64",
    user: "root",
    cgroup: "v1",
    lacks: {},
  },
  {
    name: "arm64-v2-root",
    describes: "aarch64, cgroup v2, as root",
    place: "vm",
    arch: "aarch64",
    user: "root",
    cgroup: "v2",
    lacks: {
      ...V2_LACKS,
      "32-bit-entry": "no instruction of a 64-bit program on aarch64 enters as a 32-bit one",
    },
    // What differs by machine: the C, its structures and numbers, the filter, and what they hold.
    files: [
      ...[
        "executable",
        "canary",
        "cgroup",
        "entries",
        "host-report",
        "ids",
        "isolation",
        "languages",
      ],
      ...["layout", "limits", "native", "oom", "output", "run", "seccomp", "setup-failure"],
      ...["setup-steps", "terminal", "termination", "transfer"],
    ],
  },
];

/** What `make test-vm` runs. */
export const DEFAULT_GROUNDS: readonly string[] = ["v2-root", "v2-user", "v1-root"];

/** What `make test-grounds` compares: the machine itself as root and as a user, and those. */
export const ALL_GROUNDS: readonly string[] = ["here-root", "here-user", ...DEFAULT_GROUNDS];

/** A ground by its name. @throws Error naming those there are */
export function groundNamed(name: string): Ground {
  const ground = GROUNDS.find((each) => each.name === name);
  if (ground !== undefined) return ground;
  throw new Error(`No ground "${name}": one of ${GROUNDS.map((each) => each.name).join(", ")}`);
}
