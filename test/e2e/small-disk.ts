// A file system of its own beneath a test's home, in a mount namespace that goes with the test.

import { existsSync, mkdirSync } from "node:fs";
import type { Home } from "./cprg.ts";
import { until } from "./until.ts";

/** A small disk that only programs in its namespace see at its place. */
export interface SmallDisk extends AsyncDisposable {
  /** The same place as seen from the test. */
  path(name: string): string;
  /** A command that runs what follows where the disk is mounted. */
  readonly shell: readonly string[];
  /** Mounts it anew, `rw` or `ro`; the exit code of mount(8). */
  remount(how: "ro" | "rw"): Promise<number>;
}

/** Mounts a tmpfs of some MiB over the home's data directory. */
export async function mountSmallDisk(home: Home, sizeMib: number): Promise<SmallDisk> {
  mkdirSync(home.dataDir, { recursive: true, mode: 0o700 });
  const script = `mount -t tmpfs -o size=${sizeMib}m,mode=700 tmpfs "$0" && touch "$0/mounted" && exec sleep infinity`;
  const holder = Bun.spawn(["unshare", "--mount", "/bin/sh", "-c", script, home.dataDir], {
    stdout: "ignore",
  });
  const path = (name: string): string => `/proc/${holder.pid}/root${home.dataDir}/${name}`;
  const shell = ["nsenter", "--mount", "--target", `${holder.pid}`, "--"];
  await until(() => (existsSync(path("mounted")) ? true : null), { what: "the disk is mounted" });
  return {
    path,
    shell,
    remount: async (how) =>
      await Bun.spawn([...shell, "mount", "-o", `remount,${how}`, home.dataDir], {
        stderr: "ignore",
      }).exited,
    [Symbol.asyncDispose]: async () => {
      holder.kill("SIGKILL");
      await holder.exited;
    },
  };
}
