/** What the audit log records: who did what to what, and how it went. */

/** The log that holds it. */
export const AUDIT_SUBJECT = "audit:server";

/** Everything that is recorded. */
export const AUDIT_ACTIONS = [
  "server.start",
  "server.stop",
  "key.create",
  "key.rotate",
  "key.revoke",
  "job.submit",
  "job.cancel",
  "sandbox.create",
  "sandbox.delete",
  "exec.start",
  "exec.cancel",
  "exec.signal",
  "file.put",
  "file.delete",
  "task.submit",
  "task.cancel",
  "worker.release",
  "worker.drain",
  "worker.remove",
  "worker_token.create",
  "worker_token.revoke",
  "audit.read",
  "auth.refuse",
  "audit.lost",
] as const;
/** One of {@link AUDIT_ACTIONS}. */
export type AuditAction = (typeof AUDIT_ACTIONS)[number];

/** One record. Its time is the event's. */
export interface AuditRecord {
  readonly action: AuditAction;
  /** Id of the key that acted; `local` for a command on the data directory; null: nobody known. */
  readonly key_id: string | null;
  readonly tenant: string | null;
  /** Id of what it was done to. */
  readonly object: string | null;
  readonly outcome: "ok" | "refused" | "failed";
  /** HTTP status that was answered. */
  readonly status: number | null;
  readonly request_id: string | null;
  /** How many happened, where one record stands for many. */
  readonly count?: number;
}
