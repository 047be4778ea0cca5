/**
 * Which waiting task gets which worker, and why the others wait. Pure: it is given what there is and
 * decides once. Tenants take turns; within a tenant the oldest task goes first, and one that no free
 * worker suits does not hold up the next.
 */

import type { Task } from "../core/task.ts";
import type { TenantShare } from "../store/contract.ts";

/** A worker as far as placing tasks goes. */
export interface Candidate {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Tenants that it works for; null: every one. */
  readonly tenants: readonly string[] | null;
  /** Claims that it can still take. */
  readonly freeSlots: number;
  /** It takes no claim now, whatever its slots: it drains, is quarantined or has lost its stream. */
  readonly isClosed: boolean;
  /** What it lists (proto/PROTOCOL.md section 3); left out: nothing. */
  readonly capabilities?: ReadonlySet<string>;
}

/** What is placed. */
export interface Waiting extends Pick<Task, "id" | "tenant" | "labels" | "createdAt"> {
  /** Workers that a claim of it failed on: taken only where no other is free. */
  readonly avoids?: readonly string[];
  /** What its worker must list. */
  readonly needs?: readonly string[];
}

type Wanted = Pick<Waiting, "tenant" | "labels" | "needs">;

/** Why a task waits; `no_runner`: the control plane has none of the name that it asks for. */
export type WaitingCode = "no_worker_matches" | "all_busy" | "tenant_limit" | "no_runner";

/** Who can be claimed, and who has what. */
export interface Places {
  readonly workers: readonly Candidate[];
  /** Claims of each tenant and its last turn; a tenant that is not there has none. */
  readonly shares: readonly TenantShare[];
  /** Claims that one tenant may have. */
  readonly tenantLimit: number;
}

/** What decides. */
export interface SchedulerState extends Places {
  /** Oldest first. */
  readonly waiting: readonly Waiting[];
}

/** A task and the worker that is to be claimed for it. */
export interface Assignment {
  readonly taskId: string;
  readonly tenant: string;
  readonly workerId: string;
}

/**
 * The next assignment; null when nothing can be placed. The caller claims, counts it in and asks
 * again.
 */
export function nextAssignment(state: SchedulerState): Assignment | null {
  const free = state.workers.filter((worker) => !worker.isClosed && worker.freeSlots > 0);
  if (free.length === 0) return null;
  const shares = new Map(state.shares.map((share) => [share.tenant, share]));
  /** Kinds of task that no free worker suits: found once, not for each task of a long queue. */
  const unsuited = new Set<string>();
  let best: { assignment: Assignment; share: TenantShare } | null = null;
  const decided = new Set<string>();
  for (const task of state.waiting) {
    if (decided.has(task.tenant)) continue;
    const share = shares.get(task.tenant) ?? { tenant: task.tenant, share: 0, turn: 0 };
    if (share.share >= state.tenantLimit) {
      decided.add(task.tenant);
      continue;
    }
    const kind = kindOf(task);
    if (unsuited.has(kind)) continue;
    const worker = workerFor(task, free);
    if (worker === null) {
      unsuited.add(kind);
      continue;
    }
    decided.add(task.tenant);
    if (best !== null && !isBefore(share, best.share)) continue;
    const { id: taskId, tenant } = task;
    best = { assignment: { taskId, tenant, workerId: worker.id }, share };
  }
  return best?.assignment ?? null;
}

/** Why a task waits now; null when it need not. */
export function whyWaiting(task: Waiting, state: Places): WaitingCode | null {
  const suited = state.workers.filter((worker) => suits(worker, task));
  if (suited.length === 0) return "no_worker_matches";
  const held = state.shares.find(({ tenant }) => tenant === task.tenant)?.share ?? 0;
  if (held >= state.tenantLimit) return "tenant_limit";
  return suited.some((worker) => !worker.isClosed && worker.freeSlots > 0) ? null : "all_busy";
}

/** Whether a worker is of the task's tenant or of all, and has all labels and capabilities that it asks for. */
export function suits(worker: Candidate, { tenant, labels, needs = [] }: Wanted): boolean {
  if (worker.tenants !== null && !worker.tenants.includes(tenant)) return false;
  if (!needs.every((need) => worker.capabilities?.has(need) === true)) return false;
  return Object.entries(labels).every(
    ([name, value]) => Object.hasOwn(worker.labels, name) && worker.labels[name] === value,
  );
}

function kindOf({ tenant, labels, needs = [] }: Waiting): string {
  const wanted = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([tenant, wanted, needs]);
}

function workerFor(task: Waiting, free: readonly Candidate[]): Candidate | null {
  const suited = free.filter((one) => suits(one, task));
  const others = suited.filter(({ id }) => task.avoids?.includes(id) !== true);
  return leastLoaded(others.length > 0 ? others : suited);
}

/** One with as many free slots as any, so that claims spread. */
function leastLoaded(workers: readonly Candidate[]): Candidate | null {
  let best: Candidate | null = null;
  for (const worker of workers) {
    if (best === null || worker.freeSlots > best.freeSlots) best = worker;
  }
  return best;
}

function isBefore(a: TenantShare, b: TenantShare): boolean {
  return a.share === b.share ? a.turn < b.turn : a.share < b.share;
}
