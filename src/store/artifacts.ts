/**
 * What is kept of the files that programs leave in `/workspace/out`: the contract, its bounds, and
 * the rules of room. The first implementation is files in the data directory, memory the second.
 */

/** Bytes and files that are kept of one job; a job with more keeps none. */
export const ARTIFACTS_JOB_BYTES_MAX = 64 * 1024 * 1024;
export const ARTIFACTS_JOB_FILES_MAX = 1000;
/** Bytes and jobs that are kept in all; beyond that the oldest go. */
export const ARTIFACTS_BYTES_MAX = 1024 * 1024 * 1024;
export const ARTIFACTS_JOBS_MAX = 10_000;

/** A file to keep; the sandbox of its program is still there. */
export interface ArtifactSource {
  /** Relative to `/workspace/out`; hostile text, and never a path on the host. */
  readonly path: string;
  readonly size: number;
  readonly mode: number;
  /** Its bytes, `size` at most. */
  read(): AsyncIterable<Uint8Array>;
}

/** A file that is kept. */
export interface KeptFile {
  readonly path: string;
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
}

/** What is kept of a job. */
export interface KeptFiles {
  readonly files: readonly KeptFile[];
  /** Why nothing is kept although there were files, else null. */
  readonly problem: string | null;
}

/** Whose files they are. */
export interface ArtifactOwner {
  readonly id: string;
  readonly tenant: string;
}

/** Bounds that tests make small. */
export interface ArtifactBounds {
  readonly jobBytesMax: number;
  readonly jobFilesMax: number;
  readonly bytesMax: number;
  readonly jobsMax: number;
}

/** The bounds of a server. */
export const ARTIFACT_BOUNDS: ArtifactBounds = {
  jobBytesMax: ARTIFACTS_JOB_BYTES_MAX,
  jobFilesMax: ARTIFACTS_JOB_FILES_MAX,
  bytesMax: ARTIFACTS_BYTES_MAX,
  jobsMax: ARTIFACTS_JOBS_MAX,
};

/** Keeps artifacts of jobs. */
export interface ArtifactStore {
  /** Bytes that are kept. */
  readonly usedBytes: number;
  /** Keeps all files of a job, or none with the reason why. Nothing is kept of a job without files. */
  keep(owner: ArtifactOwner, files: readonly ArtifactSource[]): Promise<void>;
  /** Keeps why there are none. */
  keepNone(owner: ArtifactOwner, problem: string): Promise<void>;
  /** Null when nothing is kept of the job. */
  list(jobId: string): Promise<KeptFiles | null>;
  /** The bytes of one file; null when there is none. They are read as they are asked for. */
  read(
    jobId: string,
    path: string,
  ): Promise<(KeptFile & { readonly bytes: AsyncIterable<Uint8Array> }) | null>;
  /** Jobs of which something is kept, oldest first. */
  jobs(): readonly string[];
  /** Forgets what is kept of jobs; unknown ids are fine. */
  remove(jobIds: readonly string[]): Promise<void>;
}

/** Why a job's files are beyond what is kept of one job; null when they are not. */
export function tooLarge(
  files: readonly ArtifactSource[],
  { jobBytesMax, jobFilesMax }: ArtifactBounds,
): string | null {
  if (files.length > jobFilesMax) return `${files.length} files, at most ${jobFilesMax} are kept`;
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return bytes > jobBytesMax ? `${bytes} bytes, at most ${jobBytesMax} are kept` : null;
}

/** What counts of a job against the bounds of all. */
interface Share {
  readonly tenant: string;
  readonly bytes: number;
}

/** Who has how much; oldest first. */
export class ArtifactShares {
  readonly #bounds: ArtifactBounds;
  readonly #byJob = new Map<string, Share>();
  readonly #byTenant = new Map<string, number>();
  #usedBytes = 0;

  constructor(bounds: ArtifactBounds) {
    this.#bounds = bounds;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  jobs(): readonly string[] {
    return [...this.#byJob.keys()];
  }

  has(jobId: string): boolean {
    return this.#byJob.has(jobId);
  }

  add({ id, tenant }: ArtifactOwner, bytes: number): void {
    this.remove(id);
    this.#byJob.set(id, { tenant, bytes });
    this.#byTenant.set(tenant, (this.#byTenant.get(tenant) ?? 0) + bytes);
    this.#usedBytes += bytes;
  }

  remove(jobId: string): void {
    const share = this.#byJob.get(jobId);
    if (share === undefined) return;
    this.#byJob.delete(jobId);
    this.#usedBytes -= share.bytes;
    const left = (this.#byTenant.get(share.tenant) ?? 0) - share.bytes;
    if (left > 0) this.#byTenant.set(share.tenant, left);
    else this.#byTenant.delete(share.tenant);
  }

  /**
   * The job whose files go to make room: the oldest of the tenant that has most, so that whoever
   * fills the room pays for it. Null when all is within the bounds.
   */
  next(): string | null {
    const isBytes = this.#usedBytes > this.#bounds.bytesMax;
    if (!isBytes && this.#byJob.size <= this.#bounds.jobsMax) return null;
    const [largest] = [...this.#byTenant].sort(([, a], [, b]) => b - a);
    for (const [jobId, { tenant }] of this.#byJob) {
      if (!isBytes || tenant === largest?.[0]) return jobId;
    }
    return null;
  }
}
