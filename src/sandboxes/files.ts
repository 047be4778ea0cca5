/** Files of open sandboxes: in, out, and away, as entries that nobody holds in memory. */

import type { EntryPart } from "../provider/contract.ts";
import { pulledEntries } from "../sandbox/entry-pipe.ts";
import type { OpenSandbox } from "./open-sandbox.ts";

/** A place in a tenant's sandbox. */
export interface FilePlace {
  readonly tenant: string;
  readonly sandboxId: string;
  /** Inside; relative to the workspace when it does not begin with a slash. */
  readonly path: string;
}

/** How files are put. */
export interface PutFilesOptions {
  /** Into the directory that is there, entry by entry. */
  readonly isMerge: boolean;
  readonly signal?: AbortSignal;
}

/** What files work with. */
export interface SandboxFilesOptions {
  /** @throws CprgError `not_found`, or `aborted` when it has ended */
  sandbox(tenant: string, id: string): Promise<OpenSandbox>;
}

/** Files as tenants move them; each move is a use of the sandbox. */
export class SandboxFiles {
  readonly #options: SandboxFilesOptions;

  constructor(options: SandboxFilesOptions) {
    this.#options = options;
  }

  /**
   * Makes a file or tree out of entries.
   *
   * @throws CprgError as `EntryTransfers.putEntries`, and what the entries throw; `resource_exhausted`
   *   when too many transfers are under way
   */
  async put(
    place: FilePlace,
    entries: AsyncIterable<EntryPart>,
    { isMerge, signal }: PutFilesOptions,
  ): Promise<void> {
    const sandbox = await this.#sandbox(place);
    using _use = sandbox.useForTransfer();
    const options = { isMerge, ...(signal === undefined ? {} : { signal }) };
    await unlessEnded(sandbox, () => sandbox.lease.putEntries(entries, place.path, options));
  }

  /**
   * A file or tree as entries, while they are asked for.
   *
   * @throws CprgError as `EntryTransfers.takeEntries`, with the first entry or later
   */
  async *take(place: FilePlace): AsyncGenerator<EntryPart, void, void> {
    const sandbox = await this.#sandbox(place);
    using _use = sandbox.useForTransfer();
    yield* pulledEntries((sink, signal) =>
      unlessEnded(sandbox, () => sandbox.lease.takeEntries(place.path, sink, { signal })),
    );
  }

  /** Removes what is at a place; nothing there is no error. */
  async remove(
    place: FilePlace,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<void> {
    const sandbox = await this.#sandbox(place);
    using _use = sandbox.useForTransfer();
    const options = signal === undefined ? {} : { signal };
    await unlessEnded(sandbox, () => sandbox.lease.remove(place.path, options));
  }

  #sandbox({ tenant, sandboxId }: FilePlace): Promise<OpenSandbox> {
    return this.#options.sandbox(tenant, sandboxId);
  }
}

/** What the end of a sandbox cuts short says so, and not that it was cancelled. */
async function unlessEnded(sandbox: OpenSandbox, move: () => Promise<void>): Promise<void> {
  try {
    await move();
  } catch (error) {
    throw sandbox.ending === null ? error : sandbox.endedError;
  }
}
