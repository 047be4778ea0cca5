// The runtime for another CPU, out of the npm package that package-lock.json pins for it.
//
//   bun test/vm/fetch-bun.ts aarch64      prints its path

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Arch, run } from "./packages.ts";

const NAMES: Readonly<Record<Arch, string>> = {
  x86_64: "@oven/bun-linux-x64",
  aarch64: "@oven/bun-linux-aarch64",
};

/** Where everything is kept that virtual machines are built from. */
export const CACHE = resolve(".cache/vm");

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly version: string; readonly integrity: string }>
  >;
}

/** Path of the program; fetched once. @throws Error when its sum is not the pinned one */
export function fetchBun(arch: Arch, folder: string): string {
  const name = NAMES[arch];
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as Lock;
  const pinned = lock.packages[`node_modules/${name}`];
  if (pinned === undefined) throw new Error(`package-lock.json does not pin ${name}`);
  const target = join(folder, `bun-${pinned.version}`);
  if (existsSync(target)) return target;
  console.error(`vm: fetching ${name} ${pinned.version} from npm (about 40 MB)`);
  mkdirSync(folder, { recursive: true });
  const packed = run("npm", ["pack", "--silent", `${name}@${pinned.version}`], folder).trim();
  const archive = join(folder, packed.split("\n").at(-1) ?? "");
  const sum = `sha512-${createHash("sha512").update(readFileSync(archive)).digest("base64")}`;
  if (sum !== pinned.integrity) throw new Error(`${archive} is ${sum}: not what is pinned`);
  run("tar", ["-xzf", archive, "package/bin/bun"], folder);
  renameSync(join(folder, "package/bin/bun"), target);
  for (const path of [archive, join(folder, "package")]) rmSync(path, { recursive: true });
  return target;
}

if (import.meta.main) {
  const [arch] = process.argv.slice(2);
  if (arch !== "aarch64" && arch !== "x86_64") throw new Error(`No architecture "${arch}"`);
  console.log(fetchBun(arch, join(CACHE, arch)));
}
