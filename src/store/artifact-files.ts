/**
 * Artifacts in the data directory: one file with the contents of a job's files one after another,
 * and one with their index, whose appearance is the commit. Both are named by the job's id, so that
 * no name that a program chose is a path on this host.
 */

import { constants } from "node:fs";
import {
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  stat,
  unlink,
} from "node:fs/promises";
import { join } from "node:path";
import { isId } from "../core/ids.ts";
import { type Log, silentLog } from "../core/log.ts";
import {
  ARTIFACT_BOUNDS,
  type ArtifactBounds,
  type ArtifactOwner,
  ArtifactShares,
  type ArtifactSource,
  type ArtifactStore,
  type KeptFile,
  type KeptFiles,
  tooLarge,
} from "./artifacts.ts";

const CHUNK_BYTES = 128 * 1024;
const CONTENT = ".content";
const INDEX = ".index";
const { O_RDONLY, O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;

/** The index of a job's files; contents follow each other in its order. */
interface Index extends KeptFiles {
  readonly tenant: string;
}

/**
 * Opens the directory, or makes it with mode 0700; what a server that died left half is removed.
 *
 * @throws the file system's error when the directory cannot be had
 */
export async function openArtifacts(
  directory: string,
  { bounds = ARTIFACT_BOUNDS, log = silentLog }: { bounds?: ArtifactBounds; log?: Log } = {},
): Promise<ArtifactStore> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const files = new ArtifactFiles(directory, { bounds, log });
  await files.recover();
  return files;
}

class ArtifactFiles implements ArtifactStore {
  readonly #directory: string;
  readonly #bounds: ArtifactBounds;
  readonly #log: Log;
  readonly #shares: ArtifactShares;

  constructor(directory: string, { bounds, log }: { bounds: ArtifactBounds; log: Log }) {
    this.#directory = directory;
    this.#bounds = bounds;
    this.#log = log;
    this.#shares = new ArtifactShares(bounds);
  }

  get usedBytes(): number {
    return this.#shares.usedBytes;
  }

  /** Counts what is there. Ids sort by age. */
  async recover(): Promise<void> {
    const names = (await readdir(this.#directory)).sort();
    const ids = new Set(names.map((name) => name.replace(/\..*$/, "")).filter(isId));
    for (const id of ids) {
      const index = await this.#index(id).catch(() => null);
      const bytes = index === null ? 0 : sizeOf(index.files);
      const isWhole = index !== null && (await this.#contentSize(id)) === bytes;
      if (isWhole) this.#shares.add({ id, tenant: index.tenant }, bytes);
      else await this.#unlink(id);
    }
    await this.#makeRoom();
  }

  async keep(owner: ArtifactOwner, files: readonly ArtifactSource[]): Promise<void> {
    if (files.length === 0) return;
    const problem = tooLarge(files, this.#bounds);
    if (problem !== null) return await this.keepNone(owner, problem);
    // Counted before it is written, so that those who write at once keep the bound together.
    this.#shares.add(owner, sizeOf(files));
    await this.#makeRoom();
    if (!this.#shares.has(owner.id)) return;
    try {
      const kept = await this.#writeContent(owner.id, files);
      await this.#writeIndex(owner.id, { tenant: owner.tenant, files: kept, problem: null });
      // Others may have needed the room meanwhile.
      if (this.#shares.has(owner.id)) this.#shares.add(owner, sizeOf(kept));
      else await this.#unlink(owner.id);
    } catch (error) {
      this.#shares.remove(owner.id);
      await this.#unlink(owner.id);
      throw error;
    }
  }

  async keepNone(owner: ArtifactOwner, problem: string): Promise<void> {
    await this.#writeIndex(owner.id, { tenant: owner.tenant, files: [], problem });
    this.#shares.add(owner, 0);
    await this.#makeRoom();
  }

  async list(jobId: string): Promise<KeptFiles | null> {
    if (!this.#shares.has(jobId)) return null;
    try {
      const { files, problem } = await this.#index(jobId);
      return { files, problem };
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
  }

  async read(jobId: string, path: string) {
    const kept = await this.list(jobId);
    let offset = 0;
    for (const file of kept?.files ?? []) {
      if (file.path === path) {
        return {
          ...file,
          bytes: readPart(this.#path(jobId, CONTENT), { offset, size: file.size }),
        };
      }
      offset += file.size;
    }
    return null;
  }

  jobs(): readonly string[] {
    return this.#shares.jobs();
  }

  async remove(jobIds: readonly string[]): Promise<void> {
    for (const id of jobIds.filter((one) => this.#shares.has(one))) {
      this.#shares.remove(id);
      await this.#unlink(id);
    }
  }

  async #makeRoom(): Promise<void> {
    for (let id = this.#shares.next(); id !== null; id = this.#shares.next()) {
      this.#log.info("artifacts removed to make room", { job_id: id });
      await this.remove([id]);
    }
  }

  /** What is written may be less than was announced: the size on disk is the truth. */
  async #writeContent(id: string, files: readonly ArtifactSource[]): Promise<KeptFile[]> {
    const flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
    const content = await open(this.#path(id, CONTENT), flags, 0o600);
    const kept: KeptFile[] = [];
    try {
      for (const file of files) {
        let size = 0;
        for await (const bytes of file.read()) {
          await content.writeFile(bytes);
          size += bytes.length;
        }
        kept.push({ path: file.path, size, mode: file.mode & 0o777 });
      }
      await content.datasync();
      return kept;
    } finally {
      await content.close();
    }
  }

  async #writeIndex(id: string, index: Index): Promise<void> {
    const path = this.#path(id, INDEX);
    const part = `${path}-part`;
    const file = await open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
    try {
      await file.writeFile(JSON.stringify(index));
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(part, path);
  }

  async #index(id: string): Promise<Index> {
    return JSON.parse(await readFile(this.#path(id, INDEX), "utf8")) as Index;
  }

  /** A job that keeps nothing but a problem has no contents. */
  async #contentSize(id: string): Promise<number> {
    return await stat(this.#path(id, CONTENT)).then(
      ({ size }) => size,
      () => 0,
    );
  }

  /** The index goes first: without it nothing refers to the contents. */
  async #unlink(id: string): Promise<void> {
    for (const suffix of [INDEX, `${INDEX}-part`, CONTENT]) {
      await unlink(this.#path(id, suffix)).catch((error: unknown) => {
        if (!isMissing(error)) this.#log.warn("artifact not removed", { job_id: id, error });
      });
    }
  }

  #path(id: string, suffix: string): string {
    return join(this.#directory, `${id}${suffix}`);
  }
}

async function* readPart(
  path: string,
  part: { readonly offset: number; readonly size: number },
): AsyncGenerator<Uint8Array> {
  const file: FileHandle = await open(path, O_RDONLY | O_NOFOLLOW);
  try {
    for (let done = 0; done < part.size; ) {
      const length = Math.min(CHUNK_BYTES, part.size - done);
      const position = part.offset + done;
      const { bytesRead, buffer } = await file.read(new Uint8Array(length), 0, length, position);
      if (bytesRead === 0) throw new Error(`${path} ends before its index says`);
      done += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

function sizeOf(files: readonly { readonly size: number }[]): number {
  return files.reduce((sum, { size }) => sum + size, 0);
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
