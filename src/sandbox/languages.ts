/**
 * The languages of this host. An interpreter counts only if it runs inside a sandbox root: a shim in
 * somebody's home directory is not there. JavaScript and TypeScript run on the executable itself.
 */

import { existsSync } from "node:fs";
import { posix } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { CommandResult, SandboxLease } from "../provider/contract.ts";
import { installCommand, type PackagedInterpreter, readDistribution } from "./distribution.ts";

/** Names of all languages. */
export const LANGUAGE_NAMES = ["python", "node", "bash", "javascript", "typescript"] as const;
/** One of {@link LANGUAGE_NAMES}. */
export type LanguageName = (typeof LANGUAGE_NAMES)[number];

/** How programs of one language run on this host. */
export interface LocalLanguage {
  readonly name: LanguageName;
  readonly version: string;
  /** Path of the interpreter, inside. */
  readonly executable: string;
  /** Name of the file beneath the workspace that the code is put into. */
  readonly fileName: string;
  /** Variables that the interpreter wants. */
  readonly variables: Readonly<Record<string, string>>;
  /** What follows the executable. */
  command(args: readonly string[]): readonly string[];
}

/** Longest that an interpreter may take to say its version: more than ten seconds on a busy, slow host. */
const VERSION_TIMEOUT_MS = 60_000;

/** What is known of a language before a host is looked at. */
interface LanguageKind {
  /** Where it may be, best first; empty for the executable itself. */
  readonly places: readonly string[];
  readonly fileName: string;
  readonly flags: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  /** Finds the version in what `--version` prints. */
  readonly version: RegExp;
  /** What a distribution's package is asked for by; null for the executable itself. */
  readonly package: PackagedInterpreter | null;
}

const RUNTIME: LanguageKind = {
  places: [],
  fileName: "main.js",
  // Nothing is fetched: there is no network inside.
  flags: ["--no-install"],
  variables: { BUN_BE_BUN: "1", DO_NOT_TRACK: "1", BUN_RUNTIME_TRANSPILER_CACHE_PATH: "0" },
  version: /^(\d+\.\d+\.\d+\S*)/,
  package: null,
};

function howToInstall({ package: name }: LanguageKind): string {
  return name === null
    ? "Put the executable where every user may reach it, such as /usr/local/bin: the directories above it must be passable (mode 0755)"
    : `Install it: ${installCommand(name, readDistribution())}; or name one with CPRG_${name.toUpperCase()}`;
}

const KINDS: Readonly<Record<LanguageName, LanguageKind>> = {
  python: {
    places: ["/usr/local/bin/python3", "/usr/bin/python3", "/bin/python3"],
    fileName: "main.py",
    flags: [],
    variables: { PYTHONUNBUFFERED: "1", PYTHONDONTWRITEBYTECODE: "1" },
    version: /^Python (\S+)/,
    package: "python",
  },
  node: {
    places: ["/usr/local/bin/node", "/usr/bin/node", "/bin/node"],
    fileName: "main.js",
    flags: [],
    variables: {},
    version: /^v(\S+)/,
    package: "node",
  },
  bash: {
    places: ["/usr/local/bin/bash", "/usr/bin/bash", "/bin/bash"],
    fileName: "main.sh",
    flags: [],
    variables: {},
    version: /version (\d\S*)/,
    package: "bash",
  },
  javascript: RUNTIME,
  typescript: { ...RUNTIME, fileName: "main.ts" },
};

/** What the search works with. */
export interface LanguageOptions {
  /** Interpreters that the operator names instead of looking for them. */
  readonly interpreters: Partial<Readonly<Record<LanguageName, string>>>;
  /** The executable as programs see it, or null where they cannot. */
  readonly runtime: string | null;
  /** The directory that the code file is named in; `""` where commands run in it. */
  readonly codeDirectory: string;
  /** Opens a sandbox to look in, whatever else is open. */
  openSandbox(): Promise<SandboxLease>;
}

/** Looks for each language at most once; what is asked for first is found first. */
export class LocalLanguages {
  readonly #options: LanguageOptions;
  readonly #found = new Map<LanguageName, Promise<LocalLanguage>>();

  constructor(options: LanguageOptions) {
    this.#options = options;
  }

  /**
   * A language.
   *
   * @throws CprgError `failed_precondition` with reason NO_INTERPRETER, saying how to install it
   */
  resolve(name: string): Promise<LocalLanguage> {
    if (!isLanguage(name)) return Promise.reject(unknownLanguage(name));
    let found = this.#found.get(name);
    if (found === undefined) {
      found = this.#search(name);
      this.#found.set(name, found);
      // A host that fails to open a sandbox now may succeed later; a missing interpreter stays so.
      found.catch((error: unknown) => {
        if (!isMissing(error)) this.#found.delete(name);
      });
    }
    return found;
  }

  /** Those that run here. @throws CprgError when no sandbox can be opened */
  async list(): Promise<readonly LocalLanguage[]> {
    const all = await Promise.allSettled(LANGUAGE_NAMES.map((name) => this.resolve(name)));
    return all.flatMap((result) => {
      if (result.status === "fulfilled") return [result.value];
      if (isMissing(result.reason)) return [];
      throw result.reason;
    });
  }

  async #search(name: LanguageName): Promise<LocalLanguage> {
    const kind = KINDS[name];
    const named = this.#options.interpreters[name];
    const places = named === undefined ? this.#places(kind) : [named];
    if (places.length === 0) throw noInterpreter(name);
    const lease = await this.#options.openSandbox();
    try {
      for (const path of places) {
        const version = await versionOf(lease, path, kind);
        if (version !== null) return this.#language(name, path, version);
      }
    } finally {
      await lease.release();
    }
    throw noInterpreter(name, named);
  }

  #language(name: LanguageName, executable: string, version: string): LocalLanguage {
    const { fileName, flags, variables } = KINDS[name];
    const codeFile = posix.join(this.#options.codeDirectory, fileName);
    return {
      name,
      version,
      executable,
      fileName,
      variables,
      command: (args) => [...flags, codeFile, ...args],
    };
  }

  /** Saves opening a sandbox for what cannot be in it: inside is what is on the host, or less. */
  #places(kind: LanguageKind): readonly string[] {
    const { runtime } = this.#options;
    if (kind.places.length === 0) return runtime === null ? [] : [runtime];
    return kind.places.filter((path) => existsSync(path));
  }
}

function isLanguage(name: string): name is LanguageName {
  return (LANGUAGE_NAMES as readonly string[]).includes(name);
}

function isMissing(error: unknown): boolean {
  return CprgError.is(error) && error.reason === "NO_INTERPRETER";
}

/** What executing something that is no interpreter of this host fails with (execve(2)). */
const NO_PROGRAM: readonly string[] = [
  "EACCES",
  "ENOENT",
  "ENOEXEC",
  "ENOTDIR",
  "EPERM",
  "ELOOP",
  "EISDIR",
];

/** Whether it would be the same the next time; a host short of memory is not. */
function isNoProgram(error: unknown): boolean {
  if (!CprgError.is(error)) return false;
  if (error.setup !== undefined) {
    return error.setup.step === "execve" && NO_PROGRAM.includes(error.setup.errnoName);
  }
  return error.reason === "PROGRAM_NOT_FOUND" || error.reason === "PROGRAM_NOT_EXECUTABLE";
}

/** @returns null for what is not there or not an interpreter @throws what another try may not meet */
async function versionOf(
  lease: SandboxLease,
  executable: string,
  kind: LanguageKind,
): Promise<string | null> {
  let result: CommandResult;
  try {
    result = await lease.invoke({
      executable,
      arguments: ["--version"],
      variables: kind.variables,
      deadlineMs: VERSION_TIMEOUT_MS,
      retain: 4096,
    });
  } catch (error) {
    if (isNoProgram(error)) return null;
    throw error;
  }
  if (result.status !== 0) return null;
  return kind.version.exec(result.stdout || result.stderr)?.[1] ?? null;
}

/** @throws CprgError `invalid_argument` for a language that no host has */
export function checkLanguageName(name: string): void {
  if (!isLanguage(name)) throw unknownLanguage(name);
}

function unknownLanguage(name: string): CprgError {
  return new CprgError("invalid_argument", `Unknown language "${name.slice(0, 64)}"`, {
    field: "language",
    hint: `One of ${LANGUAGE_NAMES.join(", ")}; any other program runs as argv`,
  });
}

function noInterpreter(name: LanguageName, named?: string): CprgError {
  const where = named === undefined ? "this host has none" : `${named} does not run in a sandbox`;
  return new CprgError("failed_precondition", `Cannot run ${name}: ${where}`, {
    field: "language",
    reason: "NO_INTERPRETER",
    hint:
      named === undefined
        ? howToInstall(KINDS[name])
        : `Sandboxes see /usr, /bin and /lib of the host: add the directory of ${named} with CPRG_BINDS`,
  });
}
