/** Artifacts that live in this process and die with it: tests use them. */

import {
  ARTIFACT_BOUNDS,
  type ArtifactBounds,
  ArtifactShares,
  type ArtifactStore,
  type KeptFile,
  tooLarge,
} from "./artifacts.ts";

interface Kept {
  readonly files: readonly (KeptFile & { readonly content: Uint8Array })[];
  readonly problem: string | null;
}

/** Artifacts in memory. */
export function memoryArtifacts(bounds: ArtifactBounds = ARTIFACT_BOUNDS): ArtifactStore {
  const kept = new Map<string, Kept>();
  const shares = new ArtifactShares(bounds);
  const remove = (id: string): void => {
    shares.remove(id);
    kept.delete(id);
  };
  const put = (owner: { id: string; tenant: string }, { files, problem }: Kept): void => {
    kept.set(owner.id, { files, problem });
    shares.add(
      owner,
      files.reduce((sum, { size }) => sum + size, 0),
    );
    for (let id = shares.next(); id !== null; id = shares.next()) remove(id);
  };
  return {
    get usedBytes() {
      return shares.usedBytes;
    },
    keep: async (owner, sources) => {
      if (sources.length === 0) return;
      const problem = tooLarge(sources, bounds);
      if (problem !== null) return put(owner, { files: [], problem });
      const files: Kept["files"][number][] = [];
      for (const source of sources) {
        const { path, mode } = source;
        const content = Buffer.concat(await Array.fromAsync(source.read()));
        files.push({ path, size: content.length, mode: mode & 0o777, content });
      }
      put(owner, { files, problem: null });
    },
    keepNone: async (owner, problem) => put(owner, { files: [], problem }),
    list: async (jobId) => {
      const found = kept.get(jobId);
      if (found === undefined) return null;
      const files = found.files.map(({ path, size, mode }) => ({ path, size, mode }));
      return { files, problem: found.problem };
    },
    read: async (jobId, path) => {
      const found = kept.get(jobId)?.files.find((file) => file.path === path);
      if (found === undefined) return null;
      const { size, mode, content } = found;
      return { path, size, mode, bytes: piecesOf(content) };
    },
    jobs: () => shares.jobs(),
    remove: async (jobIds) => jobIds.forEach(remove),
  };
}

async function* piecesOf(content: Uint8Array): AsyncGenerator<Uint8Array> {
  if (content.length > 0) yield content;
}
