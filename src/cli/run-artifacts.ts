/** `--out DIR`: files that a program left in `/workspace/out`, copied out before its sandbox goes. */

import { constants } from "node:fs";
import { mkdir, open, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Artifact, ExecLease, ExecProvider } from "../provider/contract.ts";
import { unwritable } from "./os-error.ts";

/** A provider whose leases hand over their artifacts, and what came of it. */
export interface ArtifactCollector {
  readonly provider: ExecProvider;
  /** Paths written so far, relative to the directory. */
  readonly written: readonly string[];
  /** Rethrows what went wrong; the run itself does not fail of it. */
  check(): void;
}

/** Wraps a provider so that every lease copies its artifacts to a directory when it is released. */
export function collectArtifacts(provider: ExecProvider, directory: string): ArtifactCollector {
  const written: string[] = [];
  let failure: { readonly error: unknown } | null = null;
  const copy = async (lease: ExecLease): Promise<void> => {
    try {
      for (const artifact of await lease.artifacts()) {
        await writeArtifact(directory, artifact);
        written.push(artifact.path);
      }
    } catch (error) {
      failure ??= { error };
    }
  };
  return {
    written,
    check: () => {
      if (failure !== null) throw failure.error;
    },
    provider: {
      name: provider.name,
      reserve: (limits, options) => provider.reserve(limits, options),
      open: async (reservation, options) =>
        beforeRelease(await provider.open(reservation, options), copy),
    },
  };
}

/** A lease that does something once before it is released. */
function beforeRelease(lease: ExecLease, act: (lease: ExecLease) => Promise<void>): ExecLease {
  let acted: Promise<void> | null = null;
  return {
    root: lease.root,
    home: lease.home,
    capabilities: lease.capabilities,
    layers: lease.layers,
    missing: lease.missing,
    invoke: (command) => lease.invoke(command),
    exec: (spec) => lease.exec(spec),
    putFile: (path, content, mode) => lease.putFile(path, content, mode),
    upload: (source, destination, options) => lease.upload(source, destination, options),
    download: (source, destination, options) => lease.download(source, destination, options),
    putEntries: (entries, destination, options) => lease.putEntries(entries, destination, options),
    takeEntries: (source, sink, options) => lease.takeEntries(source, sink, options),
    remove: (path, options) => lease.remove(path, options),
    artifacts: () => lease.artifacts(),
    release: async () => {
      acted ??= act(lease);
      await acted;
      await lease.release();
    },
  };
}

/** Makes the directory. @throws CprgError naming it */
export async function makeOutDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true });
  } catch (error) {
    throw unwritable(path, error);
  }
}

/** @throws CprgError naming the file; nobody finds half of it */
async function writeArtifact(directory: string, artifact: Artifact): Promise<void> {
  const path = join(directory, checkPath(artifact.path));
  await makeOutDirectory(dirname(path));
  try {
    await writeFile(path, artifact);
  } catch (error) {
    await rm(path, { force: true });
    throw CprgError.is(error) ? error : unwritable(path, error);
  }
}

async function writeFile(path: string, artifact: Artifact): Promise<void> {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  const flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
  // No set-user-id or sticky bit leaves a sandbox.
  const file = await open(path, flags, artifact.mode & 0o777);
  try {
    for await (const bytes of artifact.read()) await file.writeFile(bytes);
  } finally {
    await file.close();
  }
}

/** The program chose the name: it must stay beneath the directory. */
function checkPath(path: string): string {
  const names = path.split("/");
  const isInside = names.every((name) => name !== "" && name !== "." && name !== "..");
  if (isInside && !path.includes("\0")) return path;
  throw new CprgError(
    "data_loss",
    `Cannot copy artifact "${path}": no path beneath /workspace/out`,
  );
}
