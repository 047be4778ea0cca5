/**
 * Where the fuzzers of this folder begin: well-formed inputs from the encoder that the other tests
 * use, each behind the header of kernel.h.
 */
import {
  directory,
  encodeArchive,
  encodePlan,
  encodeRequest,
  file,
  link,
  op,
  type Plan,
  type PlanStep,
  type Request,
} from "../wire.ts";

export const fuzzTargets = ["request", "plan", "archive", "mountinfo"] as const;
export type FuzzTarget = (typeof fuzzTargets)[number];

/** The fields of `enum fake_header`; what is left out is 0. */
interface Header {
  missing?: number;
  chunk?: number;
  full?: number;
  target?: number;
}

const missing = {
  openat2: 1,
  closeRange: 4,
  listener: 8,
  mountSetattr: 16,
  violation: 32,
} as const;

function input({ missing: lacks = 0, chunk = 0, full = 0, target = 0 }: Header, text: Uint8Array) {
  const header = new Uint8Array(16);
  header.set([lacks, chunk, full, target]);
  return new Uint8Array(Buffer.concat([header, text]));
}

function requests(): Uint8Array[] {
  const program = new Uint8Array(16);
  const exec = {
    type: "exec",
    id: 9,
    argv: ["/bin/true", "x"],
    env: { A: "b", PATH: "/a:/b::/c" },
    path: "/w",
  } satisfies Request;
  const filtered = encodeRequest({ ...exec, notify: program, kill: program });
  const searched = { ...exec, argv: ["true"], nullStdin: true } satisfies Request;
  const rlimits = [{ resource: 7, soft: 9n, hard: 9n }];
  return [
    input({ target: 3 }, filtered),
    input({ missing: missing.listener, target: 3 }, filtered),
    input({ missing: missing.violation, target: 3 }, filtered),
    input({ full: 3, target: 2 }, encodeRequest({ ...searched, oomScoreAdj: 1, rlimits })),
    input(
      { missing: missing.closeRange, target: 64 + 4 },
      encodeRequest({ ...searched, cgroupCount: 2 }),
    ),
    input({ target: 1 }, encodeRequest({ type: "pack", id: 2, path: "/w" })),
    input({ target: 1 }, encodeRequest({ type: "unpack", id: 2, path: "/w", merge: true })),
    input({}, encodeRequest({ type: "signal", id: 2, signal: 9 })),
  ];
}

const steps: PlanStep[] = [
  { op: op.directory, target: "/a/b", mode: 0o755 },
  { op: op.file, target: "/a/f", mode: 0o444, content: "hello" },
  { op: op.link, target: "/bin", source: "usr/bin" },
  { op: op.bind, target: "/usr", source: "/usr", flags: 1 },
  { op: op.bind, target: "/dev/null", source: "/dev/null", flags: 12 },
  { op: op.proc, target: "/proc" },
  { op: op.mask, target: "/proc/kcore" },
  { op: op.mask, target: "/proc/acpi" },
  // More than may stay open, so that a descriptor left behind by each shows.
  ...["sys", "bus", "fs", "irq", "tty", "asound"].map((name) => ({
    op: op.readOnly,
    target: `/proc/${name}`,
  })),
  { op: op.data, target: "/.data", source: "size=64m" },
  { op: op.dataBind, target: "/workspace", source: "workspace", mode: 0o755 },
];

function plans(): Uint8Array[] {
  const plan: Plan = {
    steps,
    scratch: "/s",
    rootOptions: "size=1m",
    workspace: "/workspace",
    hostname: "h",
    unshare: 0x4402_0000,
    idProgram: 1000,
    idMap: 1,
  };
  const parent = encodePlan(plan);
  return [
    input({}, parent),
    input({ missing: missing.openat2 }, parent),
    input({ missing: missing.mountSetattr }, parent),
    input({ target: 1 }, encodePlan({ ...plan, idMap: 2 })),
  ];
}

function archives(): Uint8Array[] {
  const tree = encodeArchive([
    directory("d", 0o500),
    file("d/f", "content"),
    link("d/l", "../x"),
    file("e", "e"),
  ]);
  return [
    input({}, tree),
    input({ chunk: 3, target: 1 }, tree),
    input({ full: 3, target: 1 }, tree),
    input({ target: 2 }, tree),
    input({ missing: missing.openat2, target: 4 }, tree),
    input({}, encodeArchive([file("", "x")])),
    input({}, encodeArchive([link("", "x")])),
  ];
}

function mountinfos(): Uint8Array[] {
  const below = [
    "36 35 98:0 /m /scratch/usr rw,noatime,nosuid shared:1 - ext3 /dev/root rw",
    "37 35 98:0 /m /scratch\\040x rw,relatime - tmpfs t rw",
    "",
  ];
  const escaped = "36 35 98:0 /m /s\\040cratch/usr/a ro,nodiratime,nodev,noexec - ext3 r\n";
  return [
    input({}, Buffer.from(below.join("\n"))),
    input({ chunk: 5, target: 9 }, Buffer.from(escaped)),
  ];
}

export const fuzzSeeds: Record<FuzzTarget, () => Uint8Array[]> = {
  request: requests,
  plan: plans,
  archive: archives,
  mountinfo: mountinfos,
};
