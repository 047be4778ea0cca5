/**
 * Takes queued jobs from the store and runs them: slots, concurrency per tenant, admission, and the
 * commits around a run. Wakes on events and never polls. Knows no HTTP.
 */

import type { Clock } from "../core/clock.ts";
import type { Job } from "../core/job.ts";
import type { Log } from "../core/log.ts";
import type { Outcome } from "../core/outcome.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { ExecLease, ExecProvider, Reservation } from "../provider/contract.ts";
import { neverRan, outcomeError, setupReason } from "../record/failed-outcome.ts";
import type { Feed } from "../record/feed.ts";
import { storeEnd } from "../record/finisher.ts";
import { DESCRIPTORS_PER_JOB } from "../sandbox/free-descriptors.ts";
import type { ArtifactStore } from "../store/artifacts.ts";
import type { JobStore } from "../store/contract.ts";
import { TenantTurns } from "../tenancy/tenant-turns.ts";
import { keepArtifacts } from "./keep-artifacts.ts";
import type { JobLanguages } from "./languages.ts";
import { runJob } from "./run.ts";
import { StopSwitch } from "./stop-switch.ts";

/** Jobs at once, by default. */
export const JOB_SLOTS_DEFAULT = 4;
/** Jobs of one tenant at once, by default. */
export const TENANT_CONCURRENCY_DEFAULT = 2;

/** Pause after the store failed or descriptors ran short, before the queue is looked at again. */
const QUEUE_PAUSE_MS = 1000;

/** What a queue works with. */
export interface QueueOptions {
  readonly jobs: JobStore;
  readonly feed: Pick<Feed, "append">;
  readonly provider: ExecProvider;
  readonly languages: JobLanguages;
  /** Keeps the files that programs leave; nobody does without one. */
  readonly artifacts?: ArtifactStore;
  /** Id of this instance of the server: owner of the jobs that run here. */
  readonly instance: string;
  readonly slots: number;
  readonly tenantConcurrency: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Where values of jobs' variables are held, so that no log shows them. */
  readonly secrets?: SecretSet;
  /** Descriptors that can still be opened. */
  freeDescriptors(): number;
  /** Called after every terminal commit: wakes readers and those who wait. */
  onTerminal(job: Job): void;
  /** Waits between attempts to store an end, for tests. */
  readonly finishRetryMs?: readonly number[];
}

/** A job that has a slot: first waiting for admission, then running. */
interface Slot {
  readonly tenant: string;
  readonly stop: StopSwitch;
  state: "admission" | "running";
  /** Until the end is stored. */
  secrets: Disposable | null;
}

/** Why a queued job does not run yet. */
export interface Waiting {
  readonly code: "SLOTS_BUSY" | "TENANT_BUSY" | "ADMISSION" | "DESCRIPTORS";
  readonly detail: string;
}

/** Runs queued jobs. */
export class JobQueue {
  readonly #options: QueueOptions;
  readonly #slots = new Map<string, Slot>();
  readonly #ends = new Set<Promise<void>>();
  readonly #turns = new TenantTurns();
  readonly #stopping = new AbortController();
  #isOpen = false;
  #isFilling = false;
  #isWoken = false;
  #isShort = false;
  #pause: ReturnType<typeof setTimeout> | null = null;

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  /** Jobs that have started here and not ended, of one tenant or of all. */
  running(tenant?: string): number {
    return [...this.#slots.values()].filter(
      (slot) => slot.state === "running" && (tenant === undefined || slot.tenant === tenant),
    ).length;
  }

  /** Begins to take jobs. */
  start(): void {
    this.#isOpen = true;
    this.wake();
  }

  /** Looks for jobs that can start: after a submit, an end, a start. */
  wake(): void {
    this.#isWoken = true;
    if (!this.#isFilling) this.#track(this.#fill());
  }

  /**
   * Asks a job of this instance to stop; one that still waits for admission gives it up, and does
   * not start.
   *
   * @returns whether it has a slot here
   */
  stopJob(id: string, graceMs: number): boolean {
    const slot = this.#slots.get(id);
    slot?.stop.stop({ reason: "user", graceMs });
    return slot !== undefined;
  }

  /** Takes no more jobs, stops the running ones, and resolves when their ends are stored. */
  async close(graceMs: number): Promise<void> {
    this.#isOpen = false;
    this.#stopping.abort();
    if (this.#pause !== null) clearTimeout(this.#pause);
    for (const { stop } of this.#slots.values()) stop.stop({ reason: "shutdown", graceMs });
    while (this.#ends.size > 0) await Promise.all(this.#ends);
  }

  /** Why a job that is queued does not run yet; null when it is about to. */
  waiting(job: Job): Waiting | null {
    const { slots, tenantConcurrency } = this.#options;
    if (this.#slots.get(job.id)?.state === "admission") {
      return {
        code: "ADMISSION",
        detail: "Its limits do not fit beside the running sandboxes yet",
      };
    }
    if (this.#busyTenants().includes(job.tenant)) {
      return { code: "TENANT_BUSY", detail: `Its tenant has ${tenantConcurrency} jobs running` };
    }
    if (this.#slots.size >= slots) {
      return { code: "SLOTS_BUSY", detail: `All ${slots} slots of this server are in use` };
    }
    if (this.#isShort) {
      return { code: "DESCRIPTORS", detail: "This server has too many connections and files open" };
    }
    return null;
  }

  /** Nothing tells when a store works again or descriptors are free: they are asked with pauses. */
  #wakeLater(): void {
    if (this.#pause !== null || !this.#isOpen) return;
    this.#pause = setTimeout(() => {
      this.#pause = null;
      this.wake();
    }, QUEUE_PAUSE_MS);
  }

  async #fill(): Promise<void> {
    this.#isFilling = true;
    try {
      while (this.#isWoken && this.#isOpen) {
        this.#isWoken = false;
        while (this.#isOpen && this.#slots.size < this.#options.slots && (await this.#takeOne())) {}
      }
    } catch (error) {
      this.#options.log.error("queue not readable", { error });
      this.#wakeLater();
    } finally {
      this.#isFilling = false;
    }
  }

  /** Tenants of the slots, once for each. */
  #held(): string[] {
    return [...this.#slots.values()].map(({ tenant }) => tenant);
  }

  /** Gives a slot to the tenant whose turn it is and that may have one; false when there is none. */
  async #takeOne(): Promise<boolean> {
    const job = await this.#options.jobs.next(
      this.#busyTenants(),
      this.#turns.shares(this.#held()),
    );
    if (job === null || !this.#isOpen || !this.#hasDescriptors()) return false;
    this.#turns.served(job.tenant);
    const slot: Slot = {
      tenant: job.tenant,
      stop: new StopSwitch(),
      state: "admission",
      secrets: null,
    };
    this.#slots.set(job.id, slot);
    this.#track(this.#drive(job, slot));
    return true;
  }

  /** Connections may take what sandboxes need: a job that waits is better than one that fails. */
  #hasDescriptors(): boolean {
    const needed = DESCRIPTORS_PER_JOB * (this.#slots.size + 1);
    const isShort = this.#options.freeDescriptors() < needed;
    if (isShort && !this.#isShort) this.#options.log.warn("descriptors run short", { needed });
    this.#isShort = isShort;
    if (isShort) this.#wakeLater();
    return !isShort;
  }

  /**
   * Tenants that may start nothing now. One whose oldest job waits for admission is among them: the
   * store would give the same job again.
   */
  #busyTenants(): string[] {
    const counts = new Map<string, number>();
    for (const { tenant, state } of this.#slots.values()) {
      const weight = state === "admission" ? Number.POSITIVE_INFINITY : 1;
      counts.set(tenant, (counts.get(tenant) ?? 0) + weight);
    }
    return [...counts].flatMap(([tenant, count]) =>
      count >= this.#options.tenantConcurrency ? [tenant] : [],
    );
  }

  /** One job from admission to its stored end. */
  async #drive(job: Job, slot: Slot): Promise<void> {
    try {
      const reservation = await this.#admit(job, slot);
      if (reservation !== null) await this.#run(job, { slot, reservation });
      this.#slots.delete(job.id);
      this.wake();
    } catch (error) {
      this.#options.log.error("job not started", { job_id: job.id, error });
      this.#slots.delete(job.id);
      this.#wakeLater();
    } finally {
      slot.secrets?.[Symbol.dispose]();
    }
  }

  /** A place for the job, or null when it was stopped or can never have one. */
  async #admit(job: Job, slot: Slot): Promise<Reservation | null> {
    try {
      return await this.#options.provider.reserve(job.limits, {
        signal: slot.stop.signal,
        tenant: job.tenant,
      });
    } catch (error) {
      if (slot.stop.request !== null) return null;
      const outcome = neverRan(setupReason(error), outcomeError(error));
      await this.#finish({ id: job.id, owner: null, outcome });
      return null;
    }
  }

  async #run(job: Job, { slot, reservation }: { slot: Slot; reservation: Reservation }) {
    const { jobs, instance, clock } = this.#options;
    if (slot.stop.request !== null) return reservation.cancel();
    let started: Awaited<ReturnType<JobStore["start"]>> = null;
    try {
      started = await jobs.start(job.id, instance, clock.now());
    } finally {
      // Cancelled meanwhile, taken by another instance, or the commit failed: the place is free.
      if (started === null) reservation.cancel();
    }
    if (started === null) return;
    slot.state = "running";
    this.wake();
    const outcome = await this.#outcome(started, { slot, reservation });
    await this.#finish({ id: job.id, owner: started.owner, outcome });
  }

  async #outcome(job: Job, { slot, reservation }: { slot: Slot; reservation: Reservation }) {
    const { jobs, feed, provider, languages, artifacts, clock, log } = this.#options;
    try {
      const spec = await jobs.spec(job.id);
      if (spec === null) throw new Error(`job ${job.id} has no spec`);
      slot.secrets = this.#options.secrets?.hold(Object.values(spec.env)) ?? null;
      const append = (drafts: Parameters<Feed["append"]>[1]) =>
        feed.append(`job:${job.id}`, drafts);
      const { stop } = slot;
      const { tenant } = job;
      const run = { spec, provider, tenant, reservation, languages, append, stop, clock, log };
      if (artifacts === undefined) return await runJob(run);
      const collect = (lease: ExecLease) => keepArtifacts(lease, { job, artifacts, log });
      return await runJob({ ...run, collect });
    } catch (error) {
      reservation.cancel();
      log.error("job not run", { job_id: job.id, error });
      return neverRan("runner_error", outcomeError(error));
    }
  }

  async #finish(end: { id: string; owner: Job["owner"]; outcome: Outcome }): Promise<void> {
    const { jobs, clock, log, finishRetryMs } = this.#options;
    const retry = finishRetryMs === undefined ? {} : { retryMs: finishRetryMs };
    try {
      const job = await storeEnd(() => jobs.finish(end.id, end.owner, end.outcome, clock.now()), {
        log,
        fields: { job_id: end.id },
        stopping: this.#stopping.signal,
        ...retry,
      });
      if (job !== null) return this.#options.onTerminal(job);
      log.warn("job end refused: it had ended or has another owner", { job_id: end.id });
    } catch (error) {
      log.error("job end not stored, given up", { job_id: end.id, outcome: end.outcome, error });
    }
  }

  #track(work: Promise<void>): void {
    this.#ends.add(work);
    void work.finally(() => this.#ends.delete(work));
  }
}
