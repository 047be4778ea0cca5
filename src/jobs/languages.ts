/** What a job needs to know of a language: a port, which the engine's languages satisfy. */

/** How programs of one language run on this host. */
export interface JobLanguage {
  readonly name: string;
  readonly version: string;
  /** Path of the interpreter, as it is inside a sandbox. */
  readonly executable: string;
  /** Name of the file that the code is put into, beneath the workspace: `main.py`. */
  readonly fileName: string;
  /** Variables that the interpreter wants. */
  readonly variables: Readonly<Record<string, string>>;
  /** What follows the executable: the interpreter's flags, the code file, then the job's args. */
  command(args: readonly string[]): readonly string[];
}

/** The languages of this host. */
export interface JobLanguages {
  /** @throws CprgError with reason NO_INTERPRETER, naming the language and how to install it */
  resolve(name: string): JobLanguage | Promise<JobLanguage>;
  /** Those that can run now. */
  list(): readonly JobLanguage[] | Promise<readonly JobLanguage[]>;
}
