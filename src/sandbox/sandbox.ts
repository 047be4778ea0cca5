/**
 * One sandbox as a thing that is started and ended: process 1 with its ids, groups and descriptors.
 * Whatever fails on the way up, everything that was made is undone. What runs inside is not its
 * concern: see exec.ts and transfer.ts.
 */

import { closeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { CprgError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import { ownTurn } from "../core/turn.ts";
import type { GroupTree, SandboxGroups } from "./cgroup.ts";
import { childSignal } from "./child-signal.ts";
import { descriptorError } from "./descriptor-error.ts";
import { closeAll } from "./descriptors.ts";
import type { IdSource, SandboxIds } from "./ids.ts";
import { InitChannel, isSandboxGone } from "./init-channel.ts";
import { MAP, REPORT, type Report } from "./layout.ts";
import { pinMounts } from "./mount-pin.ts";
import { type Death, type Launched, type Launching, type Native, NativeError } from "./native.ts";
import type { PlanSource } from "./plan-source.ts";
import { PROGRAM_ID } from "./root-plan.ts";
import { stepError } from "./steps.ts";

/** Longest that process 1 may take to build the root. */
export const SETUP_TIMEOUT_MS = 20_000;
/** Looks at a killed process 1, and the longest pause between two: SIGCHLD makes it shorter. */
const REAP_TRIES_MAX = 10_000;
const REAP_PAUSE_MS = 4;
/** Between two looks at a launch whose end cannot be heard of. */
const LAUNCH_PAUSE_MS = 1;
const SIGKILL = 9;

/** What every sandbox of an engine is made with. */
export interface SandboxHost {
  readonly native: Native;
  readonly ids: IdSource;
  readonly groups: GroupTree;
  /** `enum cprg_map`: how ids are mapped into a sandbox. */
  readonly idMap: number;
  readonly plans: PlanSource;
}

/** How to start one. */
export interface SandboxOptions {
  /** Unique within the instance. */
  readonly name: string;
  readonly limits: Limits;
  readonly signal?: AbortSignal;
}

/** A sandbox whose process 1 is ready. */
export interface Sandbox {
  readonly channel: InitChannel;
  readonly groups: SandboxGroups;
  /** A directory inside, held open until `destroy`; -1 from then on. */
  readonly workspaceFd: number;
  /** The directory of its terminals, likewise; -1 as well where it has none. */
  readonly devptsFd: number;
  readonly pid: number;
  /** Set once process 1 is gone. */
  readonly death: Promise<Death>;
  /** Kills process 1, and with it everything inside; resolves when all is gone and removed. */
  destroy(): Promise<void>;
}

/**
 * Starts a sandbox.
 *
 * @throws CprgError naming the step that failed; then nothing is left
 */
export async function startSandbox(host: SandboxHost, options: SandboxOptions): Promise<Sandbox> {
  const undo = new AsyncDisposableStack();
  // What is deferred first is done last: the pipe has ended by then, as everything else has.
  let pipeEnded: Promise<void> | null = null;
  undo.defer(() => pipeEnded ?? undefined);
  let unpin = (): void => undefined;
  undo.defer(() => unpin());
  try {
    await ownTurn();
    options.signal?.throwIfAborted();
    const ids = host.ids.take();
    let isGone = true;
    undo.defer(() => {
      // Ids of a process that cannot be killed must never be another sandbox's.
      if (isGone) ids.release();
    });
    const groups = await host.groups.createSandbox(options.name, options.limits);
    undo.defer(() => groups.remove());
    options.signal?.throwIfAborted();
    await ownTurn();
    const started = await launch(host, ids, groups);
    isGone = false;
    pipeEnded = started.channel.ended;
    undo.defer(async () => {
      await started.end();
      isGone = true;
    });
    const directories = await started.ready(host, options, groups);
    unpin = pinMounts(started.launched.pid);
    undo.defer(() => directories.close());
    return sandboxOf(started, groups, { directories, undo: undo.move() });
  } catch (error) {
    const failures = await undo.disposeAsync().then(
      () => [],
      (cause: unknown) => [cause],
    );
    throw withFailedUndo(abortOr(error, options.signal), failures);
  }
}

function abortOr(error: unknown, signal: AbortSignal | undefined): unknown {
  if (!signal?.aborted || CprgError.is(error)) return error;
  return new CprgError("canceled", "Cannot open the sandbox: cancelled", { cause: error });
}

/** What failed first is what to tell; what could not be undone after it stays with it, as cause. */
function withFailedUndo(error: unknown, failures: readonly unknown[]): unknown {
  if (failures.length === 0) return error;
  const cause = new AggregateError([error, ...failures], "a sandbox that failed was not removed");
  if (!CprgError.is(error)) return CprgError.from(cause);
  const { code, message, op, reason, hint, setup, retryable } = error;
  return new CprgError(code, message, {
    ...(op === undefined ? {} : { op }),
    ...(reason === undefined ? {} : { reason }),
    ...(hint === undefined ? {} : { hint }),
    ...(setup === undefined ? {} : { setup }),
    retryable,
    cause,
  });
}

function sandboxOf(
  started: Process1,
  groups: SandboxGroups,
  {
    directories,
    undo,
  }: { readonly directories: InnerDirectories; readonly undo: AsyncDisposableStack },
): Sandbox {
  let ending: Promise<void> | null = null;
  return {
    channel: started.channel,
    groups,
    get workspaceFd() {
      return directories.workspaceFd;
    },
    get devptsFd() {
      return directories.devptsFd;
    },
    pid: started.launched.pid,
    death: started.death,
    destroy: () => {
      ending ??= undo.disposeAsync();
      return ending;
    },
  };
}

/** Whatever comes in between, it waits for the launch: until then the descriptors are in use. */
async function launch(
  host: SandboxHost,
  ids: SandboxIds,
  groups: SandboxGroups,
): Promise<Process1> {
  const { native } = host;
  const programId = host.idMap === MAP.none ? ids.program : PROGRAM_ID;
  const ours: number[] = [];
  const theirs: number[] = [];
  let connection: Connection | null = null;
  try {
    const [control, initControl] = keep(native.socketpair(), ours, theirs);
    const [report, initReport] = keep(native.pipe("read"), ours, theirs);
    connection = new Connection(native, { control, report });
    const launching = native.launch({
      map: host.idMap,
      controlFd: initControl,
      reportFd: initReport,
      cgroupDirFd: groups.launchDirFd,
      cgroupFds: groups.launchFds,
      uidInit: ids.init,
      uidProgram: ids.program,
      idInside: programId,
    });
    const launched = await connection.untilDone(launching);
    return new Process1(native, { launched, programId }, connection);
  } catch (error) {
    closeAll(theirs);
    if (connection === null) closeAll(ours);
    else await connection.end();
    throw descriptorError(error, "start a sandbox");
  } finally {
    closeAll(theirs);
    groups.launched();
  }
}

/** The channel to a process 1 that is being started, and what comes on it before its first request. */
class Connection {
  readonly channel: InitChannel;
  readonly #setup = Promise.withResolvers<Report | null>();
  readonly #launched = Promise.withResolvers<void>();

  constructor(native: Native, fds: { readonly control: number; readonly report: number }) {
    this.channel = new InitChannel(native, fds, (report) => {
      if (report?.type !== REPORT.launched) this.#setup.resolve(report);
      if (report === null || report.type === REPORT.launched) this.#launched.resolve();
    });
  }

  /** READY, or that it failed; null when it ended without a word. */
  get setup(): Promise<Report | null> {
    return this.#setup.promise;
  }

  /** Closes both, once nobody has the other ends any more. */
  async end(): Promise<void> {
    this.channel.close();
    await this.channel.ended;
  }

  /** As clone(2) itself this has no bound. @throws CprgError naming the step that failed */
  async untilDone(launching: Launching): Promise<Launched> {
    await this.#launched.promise;
    for (;;) {
      const launched = launching.take();
      if (launched !== null) return launched;
      // The pipe could not be read.
      await sleep(LAUNCH_PAUSE_MS);
    }
  }
}

/** Notes both ends of a new connection, for whoever closes them. */
function keep(
  pair: readonly [number, number],
  ours: number[],
  theirs: number[],
): readonly [number, number] {
  ours.push(pair[0]);
  theirs.push(pair[1]);
  return pair;
}

/** Directories inside that the server holds open. */
class InnerDirectories {
  workspaceFd: number;
  devptsFd: number;

  /** @param fds as they come with READY (`CPRG_REPORT_READY`) */
  constructor([workspaceFd, devptsFd = -1]: readonly number[]) {
    if (workspaceFd === undefined) throw new CprgError("internal", "READY came without its fd");
    this.workspaceFd = workspaceFd;
    this.devptsFd = devptsFd;
  }

  close(): void {
    for (const fd of [this.workspaceFd, this.devptsFd]) if (fd >= 0) closeSync(fd);
    this.workspaceFd = -1;
    this.devptsFd = -1;
  }
}

/** Process 1 from its launch to its reaping. */
class Process1 {
  readonly #native: Native;
  /** The program's id as process 1 names it: its own namespace's, or the host's without one. */
  readonly #programId: number;
  readonly launched: Launched;
  readonly channel: InitChannel;
  readonly #setup: Promise<Report | null>;
  readonly #death = Promise.withResolvers<Death>();
  #isArenaFree = false;
  #isReaping = false;

  constructor(
    native: Native,
    { launched, programId }: { readonly launched: Launched; readonly programId: number },
    { channel, setup }: Connection,
  ) {
    this.#native = native;
    this.#programId = programId;
    this.launched = launched;
    this.channel = channel;
    this.#setup = setup;
    // Whoever waits for it hears of it; when nobody does, that is no reason to end the server.
    this.#death.promise.catch(() => undefined);
    void this.channel.ended.then(() => {
      this.#freeArena();
      return this.#reap();
    });
  }

  get death(): Promise<Death> {
    return this.#death.promise;
  }

  /** Sends the plan and waits until the root stands: what process 1 gives of it. */
  async ready(
    host: SandboxHost,
    options: SandboxOptions,
    groups: SandboxGroups,
  ): Promise<InnerDirectories> {
    const plan = host.plans.encoded(options.limits, this.#programId);
    // One that could not begin does not read any more, and what it reports says why.
    const unsent = await this.channel.send(plan, []).catch((error: unknown) => error);
    if (unsent !== undefined && !isSandboxGone(unsent)) throw unsent;
    groups.prepare();
    const report = await this.#waitSetup(options.signal);
    if (report === null) throw await this.#diedEarly();
    this.#freeArena();
    if (report.type !== REPORT.ready) {
      const subject = host.plans.subject(options.limits, report.index);
      throw stepError(report, {
        op: "build a sandbox",
        ...(report.step === MOUNT_STEP && subject !== undefined ? { subject } : {}),
      });
    }
    return new InnerDirectories(this.channel.receiveFds());
  }

  /** Kills it and waits until it is reaped, and everything in its namespaces with it. */
  async end(): Promise<void> {
    this.#native.signal(this.launched.pidfd, SIGKILL);
    this.channel.close();
    await this.#reap();
    await this.#death.promise;
  }

  async #waitSetup(signal: AbortSignal | undefined): Promise<Report | null> {
    const { promise, reject } = Promise.withResolvers<never>();
    const onAbort = (): void => {
      reject(new CprgError("canceled", "Cannot open the sandbox: cancelled"));
    };
    const timer = setTimeout(() => {
      reject(
        new CprgError(
          "unavailable",
          `Cannot build a sandbox: not ready after ${SETUP_TIMEOUT_MS} ms`,
          { reason: "SETUP_TIMEOUT", hint: "The host is overloaded: lower the job slots" },
        ),
      );
    }, SETUP_TIMEOUT_MS);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([this.#setup, promise]);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #diedEarly(): Promise<CprgError> {
    const { code, signal } = await this.#death.promise;
    const { readErrno } = this.channel;
    if (readErrno !== 0) {
      return CprgError.from(descriptorError(new NativeError("read", readErrno), "start a sandbox"));
    }
    const how = signal === null ? `exited with ${code}` : `was killed by signal ${signal}`;
    return new CprgError("failed_precondition", `Cannot build a sandbox: its process 1 ${how}`, {
      reason: "SETUP_FAILED",
      hint: "Out of memory while it was built, most likely: raise limits.mem_mb",
    });
  }

  #freeArena(): void {
    if (this.#isArenaFree) return;
    this.#isArenaFree = true;
    this.#native.launchEnd(this.launched.arena);
  }

  async #reap(): Promise<void> {
    if (this.#isReaping) return;
    this.#isReaping = true;
    try {
      const death = await this.#untilDead();
      closeSync(this.launched.pidfd);
      this.#death.resolve(death);
    } catch (error) {
      this.#death.reject(error);
    }
  }

  async #untilDead(): Promise<Death> {
    for (let tries = 0; tries < REAP_TRIES_MAX; tries += 1) {
      const death = this.#native.reap(this.launched.pidfd);
      if (death !== null) return death;
      await childSignal(REAP_PAUSE_MS);
    }
    throw new CprgError("internal", `Cannot end the sandbox of process ${this.launched.pid}`, {
      reason: "SANDBOX_STUCK",
      hint: "A process in it sleeps uninterruptibly; see dmesg",
    });
  }
}

const MOUNT_STEP = 37;
