/**
 * Containers of podman without an image: the host's /usr, read-only, and the executable in an empty
 * root. Podman's own state lies beside it and goes with it; there is no registry and no network.
 */

import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cprgPath, type Ended } from "../e2e/cprg.ts";

/** Longest that a container may run. */
const CONTAINER_TIMEOUT_MS = 60_000;

const DIRECTORIES = ["usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "opt", "root"];
const LINKS = ["bin", "sbin", "lib", "lib64"];

/** A root and podman's state, for the containers of one test file. */
export interface Containers {
  /** Runs a command in a container with these options of `podman run`. */
  run(options: readonly string[], command: readonly string[]): Promise<Ended>;
  remove(): void;
}

/** Makes the root. The executable is /opt/cprg in it. */
export function makeContainers(): Containers {
  const top = mkdtempSync(join(tmpdir(), "cprg-podman-"));
  const root = join(top, "root");
  for (const name of DIRECTORIES) mkdirSync(join(root, name), { recursive: true });
  for (const name of LINKS) symlinkSync(`usr/${name}`, join(root, name));
  copyFileSync(cprgPath(), join(root, "opt/cprg"));
  return {
    run: (options, command) => runContainer(top, [...options, "--rootfs", root, ...command]),
    remove: () => rmSync(top, { recursive: true, force: true }),
  };
}

async function runContainer(top: string, words: readonly string[]): Promise<Ended> {
  const child = Bun.spawn(
    [
      ...["podman", "--root", join(top, "storage"), "--runroot", join(top, "state")],
      ...["--tmpdir", join(top, "engine"), "--storage-driver", "vfs"],
      ...["--cgroup-manager", "cgroupfs", "--events-backend", "none"],
      ...["run", "--rm", "--network", "none", "--volume", "/usr:/usr:ro"],
      // The defaults are above what an unprivileged container engine may set.
      ...["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"],
      ...words,
    ],
    {
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: top },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
      timeout: CONTAINER_TIMEOUT_MS,
    },
  );
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { code: await child.exited, out, err };
}

/** Why podman cannot run containers here, in a few words; null where it can. */
export async function whyNoContainers(): Promise<string | null> {
  if (process.getuid?.() !== 0) return "root";
  if (Bun.which("podman") === null) return "podman";
  const containers = makeContainers();
  try {
    const { code } = await containers.run([], ["/bin/true"]);
    return code === 0 ? null : "a podman that runs containers";
  } finally {
    containers.remove();
  }
}
