// Debian packages for a virtual machine, of either architecture: fetched by apt into a private
// state beneath the cache, so that nothing of this machine changes. apt checks every file against
// the signed release files of the machine's own sources.

import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

/** Debian's names of an architecture. */
export const DEBIAN_ARCH = { x86_64: "amd64", aarch64: "arm64" } as const;
/** An architecture that machines are built for. */
export type Arch = keyof typeof DEBIAN_ARCH;

/** What the root file system holds; apt adds what these depend on. */
const PACKAGES = [
  ...["base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "diffutils"],
  ...["findutils", "grep", "gzip", "hostname", "libc-bin", "mount", "perl-base", "procps", "sed"],
  ...["tar", "util-linux"],
  // What the suite runs inside sandboxes, and compiles.
  ...["python3", "nodejs", "gcc", "libc6-dev"],
];
/** Depends on the newest kernel for virtual machines. */
const KERNEL = "linux-image-cloud-";
const FETCH_TIMEOUT_MS = 15 * 60_000;

/** Folders of packages that are there. */
export interface Packages {
  readonly kernel: string;
  readonly files: readonly string[];
}

/** Fetches what is not in the cache, saying so. @throws Error with what apt said */
export function fetchPackages(arch: Arch, cache: string): Packages {
  const debian = DEBIAN_ARCH[arch];
  const folder = join(cache, debian, "packages");
  const marker = join(folder, "complete.json");
  const wanted = JSON.stringify([KERNEL, ...PACKAGES]);
  if (!existsSync(marker) || readFileSync(marker, "utf8") !== wanted) {
    console.log(`vm: fetching Debian packages for ${debian} (about 180 MB) into ${folder}`);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    fetch(debian, folder);
    writeFileSync(marker, wanted);
  }
  const files = readdirSync(folder).filter((name) => name.endsWith(".deb"));
  const kernel = files.find((name) => /^linux-image-\d/.test(name));
  if (kernel === undefined) throw new Error(`No kernel in ${folder}`);
  return {
    kernel: join(folder, kernel),
    files: files.filter((name) => name !== kernel).map((name) => join(folder, name)),
  };
}

function fetch(debian: string, folder: string): void {
  const state = join(folder, "apt");
  const sources = join(state, "sources.list.d");
  for (const each of [
    sources,
    join(state, "lists/partial"),
    join(state, "cache/archives/partial"),
  ]) {
    mkdirSync(each, { recursive: true });
  }
  writeFileSync(join(state, "status"), "");
  copySources(sources);
  const options = [
    `APT::Architecture=${debian}`,
    `APT::Architectures::=${debian}`,
    "APT::Install-Recommends=false",
    "APT::Sandbox::User=root",
    `Dir::State=${state}`,
    `Dir::State::status=${join(state, "status")}`,
    `Dir::Cache=${join(state, "cache")}`,
    "Dir::Etc::sourcelist=/dev/null",
    `Dir::Etc::sourceparts=${sources}`,
  ].flatMap((option) => ["-o", option]);
  run("apt-get", [...options, "-qq", "update"], folder);
  run("apt-get", [...options, "-qq", "-y", "--download-only", "install", ...PACKAGES], folder);
  const archives = join(state, "cache/archives");
  for (const name of readdirSync(archives).filter((each) => each.endsWith(".deb"))) {
    cpSync(join(archives, name), join(folder, name));
  }
  const image = /^ *Depends: (linux-image-\S+)/m.exec(
    run("apt-cache", [...options, "depends", `${KERNEL}${debian}`], folder),
  )?.[1];
  if (image === undefined) throw new Error(`No kernel behind ${KERNEL}${debian}`);
  run("apt-get", [...options, "-qq", "download", image], folder);
  rmSync(state, { recursive: true });
}

/** Debian's own sources only: others of this machine know nothing of the other architecture. */
function copySources(target: string): void {
  const parts = "/etc/apt/sources.list.d";
  const candidates = [
    "/etc/apt/sources.list",
    ...(existsSync(parts) ? readdirSync(parts).map((name) => join(parts, name)) : []),
  ].filter((path) => /\.(list|sources)$/.test(path) && existsSync(path));
  const debian = candidates.filter((path) => readFileSync(path, "utf8").includes("/debian"));
  if (debian.length === 0) throw new Error("apt has no source of Debian packages here");
  for (const [index, path] of debian.entries()) {
    cpSync(path, join(target, `source-${index}.${path.endsWith(".list") ? "list" : "sources"}`));
  }
}

/** Runs a program to its end. @throws Error with what it said */
export function run(program: string, args: readonly string[], cwd: string): string {
  const ran = spawnSync(program, args, {
    cwd,
    encoding: "utf8",
    timeout: FETCH_TIMEOUT_MS,
    maxBuffer: 64 << 20,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" },
  });
  if (ran.status === 0) return ran.stdout;
  const why = ran.error?.message ?? (ran.stderr || ran.stdout).trim().slice(-2000);
  throw new Error(`${program} ${args.slice(-3).join(" ")} failed: ${why}`);
}
