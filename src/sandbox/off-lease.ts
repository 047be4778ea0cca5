/** A lease without a sandbox: a directory of the host, and programs as this user. */

import {
  cpSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { Layers } from "../core/event.ts";
import type { Limits } from "../core/limits.ts";
import type {
  Artifact,
  Command,
  CommandResult,
  EntryPart,
  EntrySink,
  ExecLease,
  ExecSpec,
  LeaseCapability,
  PutOptions,
} from "../provider/contract.ts";
import { invokeThrough } from "../provider/invoke.ts";
import { BytesBound } from "./bytes-bound.ts";
import { writeTree } from "./download.ts";
import { handOn } from "./hand-on.ts";
import { sandboxGone } from "./init-channel.ts";
import { OffExec } from "./off-exec.ts";
import { HOME, WORKSPACE } from "./root-plan.ts";
import { treeEntries } from "./upload.ts";
import { sandboxVariables } from "./variables.ts";

/** What a lease is made of. */
export interface OffLeaseParts {
  /** Its own directory; removed with it. */
  readonly directory: string;
  readonly limits: Pick<Limits, "wall_seconds" | "output_kb">;
  readonly layers: Layers;
  readonly missing: readonly string[];
  onReleased(): void;
}

/** A lease on a directory. */
export class OffLease implements ExecLease {
  readonly #parts: OffLeaseParts;
  readonly #execs = new Set<OffExec>();
  #release: Promise<void> | null = null;
  readonly root: string;
  readonly home: string;
  readonly capabilities: readonly LeaseCapability[] = [];

  constructor(parts: OffLeaseParts) {
    this.#parts = parts;
    this.root = join(parts.directory, "workspace");
    this.home = join(parts.directory, "home");
    mkdirSync(this.root);
    mkdirSync(this.home);
  }

  get layers(): Layers {
    return this.#parts.layers;
  }

  get missing(): readonly string[] {
    return this.#parts.missing;
  }

  async exec(spec: ExecSpec): Promise<OffExec> {
    if (this.#release !== null) throw sandboxGone();
    if (spec.terminal !== undefined) {
      throw new CprgError("unimplemented", "Cannot give a program a terminal without a sandbox", {
        reason: "NO_TERMINAL",
      });
    }
    const exec = new OffExec(
      {
        ...spec,
        directory: this.#path(spec.directory ?? WORKSPACE),
        variables: { ...spec.variables, HOME: this.home },
      },
      { ...this.#parts.limits, ...spec.limits },
    );
    this.#execs.add(exec);
    void exec.outcome.then(() => this.#execs.delete(exec));
    return exec;
  }

  invoke(command: Command): Promise<CommandResult> {
    return invokeThrough(this, command, sandboxVariables());
  }

  async putFile(path: string, content: Uint8Array, mode = 0o644): Promise<void> {
    const target = this.#path(path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, content, { mode });
  }

  async upload(source: string, destination: string): Promise<void> {
    this.#copy(source, this.#path(destination));
  }

  async download(source: string, destination: string): Promise<void> {
    this.#copy(this.#path(source), destination);
  }

  async putEntries(
    entries: AsyncIterable<EntryPart>,
    destination: string,
    { isMerge = false }: PutOptions = {},
  ): Promise<void> {
    const target = this.#path(destination);
    const isRoot = target === this.root || target === this.home;
    const place = isMerge || isRoot ? join(this.#parts.directory, crypto.randomUUID()) : target;
    const bytes = new BytesBound(Number.POSITIVE_INFINITY, "put files");
    await writeTree(place, { bytes, fill: (sink) => handOn(entries, sink) });
    if (place === target) return;
    cpSync(place, target, { recursive: true, verbatimSymlinks: true });
    rmSync(place, { recursive: true, force: true });
  }

  async takeEntries(source: string, sink: EntrySink): Promise<void> {
    await handOn(treeEntries(this.#path(source)), sink);
  }

  async remove(path: string): Promise<void> {
    rmSync(this.#path(path), { recursive: true, force: true });
  }

  async artifacts(): Promise<readonly Artifact[]> {
    if (this.#execs.size > 0) {
      throw new CprgError("failed_precondition", "Cannot collect artifacts: a program still runs");
    }
    const out = join(this.root, "out");
    const names = statSync(out, { throwIfNoEntry: false })?.isDirectory()
      ? readdirSync(out, { recursive: true, withFileTypes: true })
      : [];
    return names
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const path = join(entry.parentPath, entry.name);
        const { size, mode } = statSync(path);
        return {
          path: posix.relative(out, path),
          size,
          mode: mode & 0o777,
          read: () => Bun.file(path).stream() as AsyncIterable<Uint8Array>,
        };
      });
  }

  release(): Promise<void> {
    this.#release ??= this.#end();
    return this.#release;
  }

  async #end(): Promise<void> {
    for (const exec of this.#execs) exec.kill("shutdown");
    await Promise.all([...this.#execs].map((exec) => exec.outcome));
    rmSync(this.#parts.directory, { recursive: true, force: true });
    this.#parts.onReleased();
  }

  #copy(source: string, destination: string): void {
    const stage = `${destination}.cprg-stage`;
    cpSync(source, stage, { recursive: true, verbatimSymlinks: true });
    rmSync(destination, { recursive: true, force: true });
    renameSync(stage, destination);
  }

  /** The paths of a sandbox mean this lease's directories; others are the host's. */
  #path(path: string): string {
    const absolute = posix.resolve(this.root, path);
    for (const [inside, here] of [
      [WORKSPACE, this.root],
      [HOME, this.home],
    ] as const) {
      if (absolute === inside) return here;
      if (absolute.startsWith(`${inside}/`)) return join(here, absolute.slice(inside.length));
    }
    return absolute;
  }
}
