/**
 * A claim's repository, cloned into the root of its place by git: https and ssh only, nothing of the
 * repository runs, submodules stay away, credentials pass through the environment of git alone.
 */

import { CprgError } from "../core/errors.ts";
import type { Exec } from "../provider/contract.ts";
import type { Place } from "./place.ts";
import { Tail } from "./tail.ts";

/** How long git may take in all. */
export const CLONE_MS_MAX = 10 * 60 * 1000;
/** Bytes of the pack, and of the files that are checked out. */
export const CLONE_BYTES_MAX = 4 * 1024 ** 3;
/** Files that are checked out. */
export const CLONE_FILES_MAX = 500_000;

/** Bytes of what git says that are kept. */
const SAID_BYTES_MAX = 4096;
/** `ulimit -f` counts blocks of 512 bytes (sh(1)). */
const BLOCK_BYTES = 512;

/** Hands out what the claim's environment holds; never asks, never keeps (gitcredentials(7)). */
const CREDENTIAL_HELPER =
  '!f() { test "$1" = get && test -n "$GIT_PASSWORD" && ' +
  `printf "username=%s\\npassword=%s\\n" "\${GIT_USERNAME:-x-access-token}" "$GIT_PASSWORD"; }; f`;

const CONFIG: readonly string[] = [
  "protocol.allow=never",
  "protocol.https.allow=always",
  "protocol.ssh.allow=always",
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "submodule.recurse=false",
  "fetch.recurseSubmodules=false",
  // Always a pack, whose size one limit holds.
  "fetch.unpackLimit=1",
  "transfer.fsckObjects=true",
  "credential.helper=",
  `credential.helper=${CREDENTIAL_HELPER}`,
  "advice.detachedHead=false",
];

/** What is cloned, and how much it may be. */
export interface CloneOptions {
  readonly url: string;
  readonly ref: string | null;
  /** The claim's: `GIT_PASSWORD` and `GIT_USERNAME` are what a server that asks is given. */
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly msMax?: number;
  readonly bytesMax?: number;
}

/**
 * Clones.
 *
 * @throws CprgError `failed_precondition` CLONE_FAILED, and the root is as empty as before; the
 *   signal's reason
 */
export async function cloneRepository(place: Place, options: CloneOptions): Promise<void> {
  const { entries } = await place.files.list(".", { after: "", limit: 1 });
  if (entries.length > 0) throw cloneFailed("the root is not empty");
  const signal = AbortSignal.any([
    options.signal,
    AbortSignal.timeout(options.msMax ?? CLONE_MS_MAX),
  ]);
  const git = new Git(place, { ...options, signal });
  try {
    await clone(git, options);
  } catch (error) {
    await emptyRoot(place);
    if (options.signal.aborted) throw options.signal.reason;
    if (signal.aborted) throw cloneFailed("it took too long");
    throw error;
  }
}

async function clone(git: Git, { url, ref, bytesMax }: CloneOptions): Promise<void> {
  await git.run("clone", "--quiet", "--no-checkout", "--no-recurse-submodules", "--template=", [
    url,
    ".",
  ]);
  const commit = ref === null ? await git.find("HEAD") : await findRef(git, ref);
  if (commit === null) {
    if (ref === null) return;
    throw cloneFailed(`it has no ${JSON.stringify(ref)}`);
  }
  await git.checkSize(commit, bytesMax ?? CLONE_BYTES_MAX);
  const isBranch = ref !== null && (await git.find(`refs/remotes/origin/${ref}`)) !== null;
  if (isBranch) await git.run("checkout", "--quiet", "-B", ref, "--track", `origin/${ref}`, []);
  else if (ref === null) await git.run("checkout", "--quiet", []);
  else await git.run("checkout", "--quiet", "--detach", commit, []);
}

/** A branch, then a tag, then a commit. */
async function findRef(git: Git, ref: string): Promise<string | null> {
  for (const name of [`refs/remotes/origin/${ref}`, `refs/tags/${ref}`]) {
    const found = await git.find(name);
    if (found !== null) return found;
  }
  return /^[0-9a-f]{7,64}$/.test(ref) ? await git.find(ref) : null;
}

async function emptyRoot(place: Place): Promise<void> {
  const { entries } = await place.files.list(".", { after: "", limit: Number.MAX_SAFE_INTEGER });
  for (const { name } of entries) await place.files.remove(name, { recursive: true });
}

/** git in a place. */
class Git {
  readonly #place: Place;
  readonly #options: Pick<CloneOptions, "env" | "signal" | "bytesMax">;

  constructor(place: Place, options: Pick<CloneOptions, "env" | "signal" | "bytesMax">) {
    this.#place = place;
    this.#options = options;
  }

  /** Runs git; the last argument are operands, behind `--`. @throws CprgError CLONE_FAILED */
  async run(...args: [...string[], readonly string[]]): Promise<void> {
    const operands = args.at(-1) as readonly string[];
    const words = args.slice(0, -1) as string[];
    const { status, stderr } = await this.#git([
      ...words,
      ...(operands.length === 0 ? [] : ["--", ...operands]),
    ]);
    if (status !== 0) throw cloneFailed(stderr.trim().split("\n").at(-1) ?? `git ended: ${status}`);
  }

  /** The commit that a name leads to, or null. */
  async find(name: string): Promise<string | null> {
    const { status, stdout } = await this.#git([
      "rev-parse",
      "--verify",
      "--quiet",
      "--end-of-options",
      `${name}^{commit}`,
    ]);
    return status === 0 ? stdout.trim() : null;
  }

  /** What a checkout would write. @throws CprgError CLONE_FAILED beyond the bounds */
  async checkSize(commit: string, bytesMax: number): Promise<void> {
    let bytes = 0;
    let files = 0;
    let rest = "";
    const count = (text: string): void => {
      const lines = (rest + text).split("\0");
      rest = lines.pop() ?? "";
      for (const line of lines) bytes += Number(/^\S+ \S+ \S+ +(\d+)/.exec(line)?.[1] ?? 0);
      files += lines.length;
    };
    const { status } = await this.#git(["ls-tree", "-r", "-l", "-z", commit], count);
    if (status !== 0) throw cloneFailed("its tree cannot be read");
    if (bytes > bytesMax) throw cloneFailed(`its files have ${bytes} bytes, at most ${bytesMax}`);
    if (files > CLONE_FILES_MAX) throw cloneFailed(`it has ${files} files`);
  }

  async #git(
    args: readonly string[],
    onOutput?: (text: string) => void,
  ): Promise<{ status: number; stdout: string; stderr: string }> {
    const { env, signal, bytesMax = CLONE_BYTES_MAX } = this.#options;
    const config = CONFIG.flatMap((setting) => ["-c", setting]);
    const blocks = Math.ceil(bytesMax / BLOCK_BYTES);
    const exec = await this.#place.exec({
      executable: "/bin/sh",
      arguments: ["-c", `ulimit -f ${blocks}; exec git "$@"`, "sh", ...config, ...args],
      variables: {
        PATH: "/usr/local/bin:/usr/bin:/bin",
        ...env,
        HOME: this.#place.home,
        LC_ALL: "C.UTF-8",
        GIT_TERMINAL_PROMPT: "0",
        GIT_ASKPASS: "",
        GIT_CONFIG_NOSYSTEM: "1",
        GIT_CONFIG_GLOBAL: "/dev/null",
        GIT_ALLOW_PROTOCOL: "https:ssh",
        GIT_SSH_COMMAND: "ssh -o BatchMode=yes",
      },
      signal,
    });
    return await finished(exec, { signal, onOutput });
  }
}

async function finished(
  exec: Exec,
  { signal, onOutput }: { signal: AbortSignal; onOutput: ((text: string) => void) | undefined },
): Promise<{ status: number; stdout: string; stderr: string }> {
  const kill = (): void => exec.kill("user");
  if (signal.aborted) kill();
  signal.addEventListener("abort", kill);
  const said = { stdout: new Tail(SAID_BYTES_MAX), stderr: new Tail(SAID_BYTES_MAX) };
  for await (const notice of exec.notices) {
    if (notice.type !== "output") continue;
    if (onOutput !== undefined && notice.channel === "stdout") {
      onOutput(Buffer.from(notice.bytes).toString("latin1"));
    } else {
      said[notice.channel].add(notice.bytes);
    }
  }
  const { exitCode } = await exec.outcome;
  signal.removeEventListener("abort", kill);
  if (signal.aborted) throw signal.reason;
  const text = (tail: Tail): string => Buffer.from(tail.take()).toString("utf8");
  return { status: exitCode ?? -1, stdout: text(said.stdout), stderr: text(said.stderr) };
}

function cloneFailed(why: string): CprgError {
  return new CprgError("failed_precondition", `Cannot clone: ${why.slice(0, 512)}`, {
    reason: "CLONE_FAILED",
  });
}
