// The disks of a virtual machine: a root file system out of Debian packages, kept in the cache, and
// one with the project as it is now.

import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { type Arch, type Packages, run } from "./packages.ts";

/** The C compiler's own parts that no test needs: they would double the disk. */
const LEFT_OUT = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"];
/** Modules of the ramdisk; one that a kernel has built in is not there. */
const MODULES = [
  ...["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"],
  ...["virtio_blk", "virtio_console"],
];
const PROJECT_PARTS = [
  "src",
  "test",
  "ffi",
  "proto",
  "package.json",
  "bunfig.toml",
  "tsconfig.json",
];

/** What a host has, whichever package brings it. */
const DIRECTORIES = [
  ...["dev", "etc", "home", "mnt", "opt/cprg", "proc", "root", "run", "srv", "sys", "tmp"],
  ...["var/lib", "var/tmp"],
];

/** What QEMU is given. */
export interface Disks {
  readonly kernel: string;
  readonly ramdisk: string;
  readonly root: string;
  readonly project: string;
}

/** Built files of the project, for the machine's architecture. */
export interface Built {
  readonly bun: string;
  readonly executable: string;
  /** dist/ffi/ARCH */
  readonly ffi: string;
}

/** Makes what is missing: kernel, ramdisk and root file system from the packages, once. */
export function buildDisks(
  arch: Arch,
  from: { readonly packages: Packages; readonly built: Built; readonly cache: string },
): Disks {
  const folder = join(from.cache, arch);
  const disks = {
    kernel: join(folder, "kernel"),
    ramdisk: join(folder, "ramdisk.gz"),
    root: join(folder, "root.ext4"),
    project: join(folder, "project.ext4"),
  };
  mkdirSync(folder, { recursive: true });
  buildKernel(from.packages, disks, folder);
  if (isOlder(disks.root, [...from.packages.files, import.meta.path])) {
    buildRoot(from.packages, disks.root, folder);
  }
  buildProject(arch, from.built, disks.project);
  return disks;
}

function isOlder(target: string, sources: readonly string[]): boolean {
  if (!existsSync(target)) return true;
  const madeMs = Bun.file(target).lastModified;
  return sources.some((source) => Bun.file(source).lastModified > madeMs);
}

/** The kernel, and a ramdisk with one program, the drivers of the disks and a script. */
function buildKernel(packages: Packages, disks: Disks, folder: string): void {
  const script = join(import.meta.dir, "guest/init.sh");
  if (!isOlder(disks.ramdisk, [packages.kernel, script, import.meta.path])) return;
  const image = fresh(join(folder, "image"));
  run("dpkg-deb", ["-x", packages.kernel, image], folder);
  const vmlinuz = readdirSync(join(image, "boot")).find((name) => name.startsWith("vmlinuz-"));
  if (vmlinuz === undefined) throw new Error(`No kernel in ${packages.kernel}`);
  cpSync(join(image, "boot", vmlinuz), disks.kernel);

  const ramdisk = fresh(join(folder, "ramdisk"));
  for (const name of ["bin", "modules"]) mkdirSync(join(ramdisk, name));
  const modules = readdirSync(join(image, "lib/modules"), { recursive: true })
    .map(String)
    .filter((path) => path.endsWith(".ko") && MODULES.includes(basename(path, ".ko")));
  for (const path of modules) {
    cpSync(join(image, "lib/modules", path), join(ramdisk, "modules", basename(path)));
  }
  const busybox = packages.files.find((path) => basename(path).startsWith("busybox-static_"));
  if (busybox === undefined) throw new Error("No busybox among the packages");
  const unpacked = fresh(join(folder, "busybox"));
  run("dpkg-deb", ["-x", busybox, unpacked], folder);
  const binary = ["bin/busybox", "usr/bin/busybox"].find((path) =>
    existsSync(join(unpacked, path)),
  );
  if (binary === undefined) throw new Error(`No program in ${busybox}`);
  cpSync(join(unpacked, binary), join(ramdisk, "bin/busybox"));
  cpSync(script, join(ramdisk, "init"));
  run("sh", ["-c", `find . | cpio -o -H newc --quiet | gzip -1 > ${disks.ramdisk}`], ramdisk);
  for (const path of [image, ramdisk, unpacked]) rmSync(path, { recursive: true });
}

/** Unpacks the packages; none of their scripts runs, and what those would do is done here. */
function buildRoot(packages: Packages, target: string, folder: string): void {
  console.log("vm: building the root file system");
  const root = fresh(join(folder, "root"));
  for (const name of ["bin", "sbin", "lib", "lib64"]) {
    mkdirSync(join(root, "usr", name), { recursive: true });
    symlinkSync(`usr/${name}`, join(root, name));
  }
  for (const file of packages.files) {
    const unpack = `dpkg-deb --fsys-tarfile "${file}" | tar -x --keep-directory-symlink -C "${root}"`;
    run("bash", ["-o", "pipefail", "-c", unpack], folder);
  }
  for (const name of LEFT_OUT) rmSync(join(root, name), { recursive: true, force: true });
  for (const name of DIRECTORIES) {
    mkdirSync(join(root, name), { recursive: true });
  }
  const master = join(root, "usr/share/base-passwd");
  cpSync(join(master, "passwd.master"), join(root, "etc/passwd"));
  cpSync(join(master, "group.master"), join(root, "etc/group"));
  symlinkSync("gcc", join(root, "usr/bin/cc"));
  if (!existsSync(join(root, "bin/sh"))) symlinkSync("dash", join(root, "bin/sh"));
  run("ldconfig", ["-r", root], folder);
  makeImage(root, target, 256);
  rmSync(root, { recursive: true });
}

function buildProject(arch: Arch, built: Built, target: string): void {
  const tree = fresh(`${target}.tree`);
  for (const part of PROJECT_PARTS) cpSync(part, join(tree, part), { recursive: true });
  for (const place of importedPackages()) {
    cpSync(place, join(tree, place), { recursive: true });
  }
  mkdirSync(join(tree, "bin"));
  cpSync(built.bun, join(tree, "bin/bun"));
  mkdirSync(join(tree, "dist/ffi"), { recursive: true });
  cpSync(built.executable, join(tree, "dist/cprg"));
  cpSync(built.ffi, join(tree, "dist/ffi", arch), { recursive: true });
  makeImage(tree, target, 32);
  rmSync(tree, { recursive: true });
}

/** Where the packages are that the product needs, those that they need among them. */
function importedPackages(): string[] {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8")) as {
    readonly packages: Readonly<
      Record<string, { dev?: boolean; optional?: boolean; devOptional?: boolean }>
    >;
  };
  return Object.entries(packages).flatMap(([place, { dev, optional, devOptional }]) =>
    place === "" || dev || optional || devOptional ? [] : [place],
  );
}

function fresh(directory: string): string {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  return directory;
}

/** A file system of what is in a directory, with room beside it. */
function makeImage(directory: string, target: string, spareMb: number): void {
  const usedKb = Number(run("du", ["-sk", directory], ".").split("\t")[0]);
  const sizeMb = Math.ceil((usedKb / 1024) * 1.15) + spareMb;
  rmSync(target, { force: true });
  const partial = `${target}.partial`;
  writeFileSync(partial, "");
  const options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", directory];
  run("mke2fs", [...options, partial, `${sizeMb}M`], ".");
  run("mv", [partial, target], ".");
}
