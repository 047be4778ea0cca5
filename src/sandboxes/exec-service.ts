/** Everything that can be asked of execs in open sandboxes: run, look, wait, follow, input, end. */

import type { SealKey } from "../core/chain.ts";
import type { Clock } from "../core/clock.ts";
import { CprgError } from "../core/errors.ts";
import type { ExecRecord } from "../core/exec.ts";
import { isId, newId, shownId } from "../core/ids.ts";
import type { Limits } from "../core/limits.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { SecretSet } from "../core/secrets.ts";
import { exportLog } from "../record/export.ts";
import type { Feed } from "../record/feed.ts";
import { storeEnd } from "../record/finisher.ts";
import { replayStream } from "../record/replay-stream.ts";
import { resultStream } from "../record/result-stream.ts";
import { checkStoredBytes } from "../record/stored-bytes.ts";
import { TerminalWaits } from "../record/terminal-waits.ts";
import type { EventLine, ExecPage, Store } from "../store/contract.ts";
import { LiveExec } from "./live-exec.ts";
import type { OpenSandbox } from "./open-sandbox.ts";
import { LIMITS_EVERYWHERE } from "./placed.ts";
import { type ExecRequest, execPlan, namesOf } from "./spec.ts";
import { execResultHead } from "./views.ts";

/** What a service of execs works with. */
export interface ExecServiceOptions {
  readonly store: Store;
  readonly feed: Feed;
  readonly signingKey: SealKey;
  readonly instance: string;
  readonly log: Log;
  /** Where values of variables are held while a program may use them. */
  readonly secrets: SecretSet | undefined;
  readonly clock: Clock;
  /** Bytes that may be kept for one tenant. */
  readonly tenantBytesMax: number | undefined;
  /** Aborted when the server stops. */
  readonly stopping: AbortSignal;
  /** @throws CprgError `not_found`, or `aborted` when it has ended */
  sandbox(tenant: string, id: string): Promise<OpenSandbox>;
  /** The exec if it runs here, or null. */
  live(exec: ExecRecord): LiveExec | null;
  /** @throws CprgError `unavailable` when descriptors run short */
  checkDescriptors(): void;
  /** Called when a sandbox turned out to have ended by itself. */
  onGone(sandboxId: string): void;
}

/** What is started. */
export interface ExecStart {
  readonly request: ExecRequest;
  /** Of the key or the server. */
  readonly ceilings: Limits;
  /** Gives up what has not begun; its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** What a wait is bounded by. */
export interface ExecWait {
  /** Relative. */
  readonly waitMs: number;
  readonly signal?: AbortSignal;
}

/** Execs as tenants use them. */
export class ExecService {
  readonly #options: ExecServiceOptions;
  readonly #waits = new TerminalWaits();

  constructor(options: ExecServiceOptions) {
    this.#options = options;
  }

  /**
   * Starts a program; one that could not be started is an exec that has ended.
   *
   * @throws CprgError `not_found`, `aborted` when the sandbox has ended, `resource_exhausted` when
   *   as many run in it as may, `invalid_argument`
   */
  async start(
    tenant: string,
    sandboxId: string,
    { request, ceilings, signal }: ExecStart,
  ): Promise<ExecRecord> {
    const sandbox = await this.#options.sandbox(tenant, sandboxId);
    const plan = execPlan(request, { ...sandbox.spec, ceilings });
    checkEnforced(sandbox, request);
    // Held until the exec itself is noted: a sandbox must not go idle in between.
    using place = sandbox.placeForExec();
    using held = new DisposableStack();
    held.use(this.#options.secrets?.hold(Object.values(request.env ?? {}), tenant));
    await checkStoredBytes(this.#options.store, tenant, {
      what: "start a program",
      bytesMax: this.#options.tenantBytesMax,
    });
    this.#options.checkDescriptors();
    const record: ExecRecord = {
      id: newId(),
      sandboxId,
      tenant,
      status: "running",
      argv: plan.argv,
      hasTerminal: plan.terminal !== null,
      limits: plan.limits,
      createdAt: this.#options.clock.now(),
      finishedAt: null,
      instance: this.#options.instance,
      outcome: null,
    };
    const { store, feed, clock, log } = this.#options;
    signal?.throwIfAborted();
    if (sandbox.ending !== null) throw sandbox.endedError;
    await store.execs.insert(record);
    const subject = `exec:${record.id}` as const;
    const exec = new LiveExec({
      record,
      plan,
      lease: sandbox.lease,
      clock,
      log,
      append: (drafts) => feed.append(subject, drafts),
      finish: (outcome) => this.#finish(record.id, outcome),
      onGone: () => this.#options.onGone(sandboxId),
    });
    sandbox.add(exec);
    const untilDone = held.move();
    void exec.done.finally(() => untilDone.dispose());
    place[Symbol.dispose]();
    await exec.started;
    return (await store.execs.get(record.id)) ?? record;
  }

  /** @throws CprgError `not_found` */
  async get(tenant: string, id: string): Promise<ExecRecord> {
    const exec = isId(id) ? await this.#options.store.execs.get(id) : null;
    if (exec === null || exec.tenant !== tenant) throw notFound(id);
    return exec;
  }

  /** A page of a sandbox's execs, newest first; the caller has looked whose the sandbox is. */
  async list(query: {
    readonly sandboxId: string;
    readonly limit: number;
    readonly cursor?: string;
  }): Promise<ExecPage> {
    return await this.#options.store.execs.list(query);
  }

  /**
   * Waits for an exec's end.
   *
   * @returns the exec as it is after the wait
   * @throws CprgError `not_found`
   */
  async wait(tenant: string, id: string, bounds: ExecWait): Promise<ExecRecord> {
    using wait = this.#waits.open(id, bounds);
    const exec = await this.get(tenant, id);
    if (exec.status !== "running") return exec;
    await wait.ended;
    return await this.get(tenant, id);
  }

  /**
   * Cancels an exec, and waits for its end.
   *
   * @returns the exec as it is then
   * @throws CprgError `not_found`; `aborted` when it has ended already
   */
  async cancel(tenant: string, id: string, bounds: ExecWait): Promise<ExecRecord> {
    using wait = this.#waits.open(id, bounds);
    (await this.running(tenant, id)).cancel();
    await wait.ended;
    return await this.get(tenant, id);
  }

  /** The exec, to be written to, signalled or resized. @throws CprgError as {@link cancel} */
  async running(tenant: string, id: string): Promise<LiveExec> {
    const exec = await this.get(tenant, id);
    const live = this.#options.live(exec);
    if (live !== null) return live;
    const state = exec.status === "running" ? "its sandbox has ended" : `it is ${exec.status}`;
    throw new CprgError("aborted", `Cannot reach exec "${id}": ${state}`, {
      reason: "EXEC_ENDED",
      retryable: false,
    });
  }

  /** Pieces of a result's JSON, folded from the log as it is now. */
  result(exec: ExecRecord): AsyncIterable<string> {
    const subject = `exec:${exec.id}` as const;
    return resultStream(this.#options.store.events, { subject, head: execResultHead(exec) });
  }

  /** Pieces of a replay's JSON: events from `fromSeq` to the newest. */
  replay(exec: ExecRecord, fromSeq: number): AsyncIterable<string> {
    const subject = `exec:${exec.id}` as const;
    const head = { exec_id: exec.id };
    return replayStream(this.#options.store.events, { subject, head, fromSeq });
  }

  /** The sealed export of an exec's log, in NDJSON. */
  exportLog(exec: ExecRecord): AsyncIterable<Uint8Array> {
    const { store, signingKey: key, clock } = this.#options;
    return exportLog({ store, key, subject: `exec:${exec.id}`, clock });
  }

  /** Events from `fromSeq` on, as they come, until the exec has ended or the signal is aborted. */
  subscribe(
    exec: ExecRecord,
    options: { readonly fromSeq: number; readonly signal: AbortSignal },
  ): AsyncIterable<readonly EventLine[]> {
    return this.#options.feed.subscribe(`exec:${exec.id}`, options);
  }

  /** Wakes everybody who waits: nothing will end here any more. */
  wakeAll(): void {
    this.#waits.wakeAll();
  }

  async #finish(id: string, outcome: Outcome): Promise<void> {
    const { store, feed, clock, log, stopping } = this.#options;
    const ended = await storeEnd(() => store.execs.finish(id, outcome, clock.now()), {
      log,
      fields: { exec_id: id },
      stopping,
    });
    if (ended === null) log.warn("exec end refused: it had ended", { exec_id: id });
    feed.advanced(`exec:${id}`);
    this.#waits.wake(id);
  }
}

/** What is asked for and cannot be had is refused, and not silently left out. */
function checkEnforced({ lease }: OpenSandbox, { limits }: ExecRequest): void {
  if (lease.enforcesLimits !== false) return;
  const name = namesOf(limits).find((each) => !LIMITS_EVERYWHERE.includes(each));
  if (name === undefined) return;
  throw new CprgError(
    "failed_precondition",
    `Cannot use limits.${name}: the worker of this sandbox enforces no such limit`,
    {
      reason: "LIMIT_NOT_ENFORCED",
      field: `limits.${name}`,
      hint: "Ask for limits when the sandbox is opened, and it gets a worker that enforces them",
    },
  );
}

function notFound(id: string): CprgError {
  return new CprgError("not_found", `Cannot find exec ${shownId(id)}: there is none`, {
    reason: "EXEC_NOT_FOUND",
  });
}
