/**
 * Giving up what the server does not need. Capabilities are a thread's own, and the runtime has
 * threads before any code of ours: so the first process cuts those of its main thread and executes
 * itself anew, which ends the others; every thread of the second starts with what was kept.
 *
 * The second process takes nobody's word for it: it reads what each of its threads has. The variable
 * says only that a restart has been tried, so that one which does not help is not tried for ever.
 */

import { accessSync, constants, mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { CprgError } from "../core/errors.ts";
import { type CapabilityName, capabilityMask, capabilityNames } from "./capability-names.ts";
import { Native, NativeError } from "./native.ts";
import { neededCapabilities } from "./server-capabilities.ts";
import { type ServerPlan, serverNeeds } from "./server-needs.ts";
import { isWithin, ownCapabilities, threadCapabilities } from "./thread-capabilities.ts";

/** Set in the second process. No name of a setting, because nobody is to set it. */
const RESTARTED = "_CPRG_RESTARTED";

const EPERM = 1;
const STDERR = 2;
const OWN_FILES = /^(anon_inode|\/?memfd):/;

/** What a server can do on its host. */
export interface ServerPrivileges {
  /** Whether everything else was given up, in every thread and for good. */
  readonly isReduced: boolean;
  /** `CAP_SETUID` and so on; every one that the process has. */
  readonly capabilities: readonly string[];
}

/** How to reduce them. */
export interface ReduceOptions extends ServerPlan {
  /** Where native code is kept when it cannot be kept in memory. */
  readonly dataDir: string;
  /** Made before anything is given up: they may lie in a directory of another user. */
  readonly directories: readonly string[];
  /** Of this process. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** What this process can do, with nothing given up. */
export function fullPrivileges(): ServerPrivileges {
  if (process.platform !== "linux") return { isReduced: false, capabilities: [] };
  return { isReduced: false, capabilities: capabilityNames(ownCapabilities().effective) };
}

/**
 * Gives up, as root on Linux, everything but what the engine needs. The first call of a process that
 * has more does not return: the program starts anew, with the same id, arguments, variables and
 * inherited descriptors. To be called before anything is opened or any signal is taken over.
 *
 * @throws CprgError `failed_precondition` when it cannot be done, with the fix; the process may have
 *   lost some of its capabilities then and must end
 */
export async function reducePrivileges(options: ReduceOptions): Promise<ServerPrivileges> {
  const threads = threadCapabilities();
  const { bounding, effective } = ownCapabilities();
  const needed = neededCapabilities(serverNeeds(options, bounding));
  const keep = capabilityMask(needed);
  if (threads.every((thread) => isWithin(thread, keep))) {
    for (const directory of options.directories) checkWritable(directory);
    return { isReduced: true, capabilities: capabilityNames(effective) };
  }
  if (options.env[RESTARTED] !== undefined) throw notReduced(threads, keep);
  for (const directory of options.directories) makeDirectory(directory);
  const native: Native = await Native.load({ dataDir: options.dataDir });
  try {
    native.reduce(keep);
    native.restart({
      args: readFileSync("/proc/self/cmdline"),
      variables: variables(),
      fds: inheritedFds(),
    });
  } catch (error) {
    if (error instanceof NativeError) throw refused(error, needed);
    throw error;
  }
}

function makeDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch {
    // Whoever is going to use it says what is wrong with it.
  }
}

/** Root may write anywhere; what is left of it only where modes say so. */
function checkWritable(directory: string): void {
  try {
    accessSync(directory, constants.W_OK);
  } catch (cause) {
    // Everything but a mode is as it would be for root, and said where the directory is used.
    if ((cause as NodeJS.ErrnoException).code !== "EACCES") return;
    throw new CprgError("failed_precondition", `Cannot write to ${directory}: it is not root's`, {
      reason: "PRIVILEGES",
      hint: `chown -R root ${directory}, or name another directory: the server gives up the right to write to those of others`,
      cause,
    });
  }
}

/** Those that this process was started with, as bytes: they need be no UTF-8. */
function variables(): Uint8Array {
  return Buffer.concat([readFileSync("/proc/self/environ"), Buffer.from(`${RESTARTED}=1\0`)]);
}

/**
 * Descriptors that somebody else opened for this process: a socket of systemd's, a lock that is held
 * for as long as the server lives. The runtime marks them close-on-exec when it starts, like its own,
 * which are events and memory.
 */
function inheritedFds(): readonly number[] {
  return readdirSync("/proc/self/fd")
    .map(Number)
    .filter((fd) => fd > STDERR && !OWN_FILES.test(linkOf(fd)));
}

function linkOf(fd: number): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    // The descriptor of the listing, closed again.
    return "memfd:";
  }
}

function refused(cause: NativeError, needed: readonly CapabilityName[]): CprgError {
  const isBoundingSet = cause.call === "reduce" && cause.errno === EPERM;
  const names = needed.join(" ");
  return new CprgError("failed_precondition", `Cannot give up capabilities: ${cause.message}`, {
    op: "give up capabilities",
    reason: "PRIVILEGES",
    hint: isBoundingSet
      ? `Give the server CAP_SETPCAP, which this takes; or start it with nothing but ${names} (systemd: CapabilityBoundingSet=, container: --cap-drop=all --cap-add=…)`
      : "The server executes itself again: its file must still be executable, /proc mounted, and its arguments and variables not too long",
    cause,
  });
}

function notReduced(threads: ReturnType<typeof threadCapabilities>, keep: bigint): CprgError {
  const held = threads.reduce((all, thread) => all | thread.permitted | thread.bounding, 0n);
  const excess = capabilityNames(held & ~keep);
  const state = excess.length === 0 ? "no_new_privs is not set" : `it has ${excess.join(", ")}`;
  return new CprgError(
    "failed_precondition",
    `Cannot give up capabilities: restarted, but ${state}`,
    {
      op: "give up capabilities",
      reason: "PRIVILEGES",
      hint: `Unset ${RESTARTED}, which only the server itself may set`,
    },
  );
}
