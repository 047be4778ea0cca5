/**
 * The tools of an agent: exec, read, write and edit in a claimed lease. Calls of one answer run one
 * after the other, because a model that writes a file and runs it means that order.
 */

import { z } from "zod";
import { CprgError } from "../../core/errors.ts";
import type { SandboxLease } from "../../provider/contract.ts";
import { EDIT_BYTES_MAX, type FileCall, readPart, replaceOnce, writeWhole } from "./agent-files.ts";

// The binary forbids code made from strings, which zod would use where it can.
z.config({ jitless: true });

/** Calls that one answer of a model may make. */
export const STEP_CALLS_MAX = 16;
/** Seconds of one exec when the model does not say. */
export const EXEC_SECONDS_DEFAULT = 120;
/** Seconds of a call that reads or writes a file. */
const FILE_SECONDS = 60;
/** Characters that a note shows of a call. */
const NOTE_CHARS_MAX = 500;

const SHELL = "/bin/sh";

const inputs = {
  exec: z.strictObject({
    command: z.string().min(1).describe("For /bin/sh, in the working directory."),
    timeout_seconds: z.number().positive().optional(),
  }),
  read: z.strictObject({
    path: z.string().min(1),
    offset: z.int().nonnegative().optional().describe("Bytes to leave out first."),
  }),
  write: z.strictObject({ path: z.string().min(1), content: z.string() }),
  edit: z.strictObject({
    path: z.string().min(1),
    old: z.string().min(1).describe("Text that occurs exactly once in the file."),
    new: z.string().describe("What takes its place."),
  }),
};

/** Names of the tools. */
export type ToolName = keyof typeof inputs;
type Input<N extends ToolName> = z.output<(typeof inputs)[N]>;

/** What the tools work with. */
export interface AgentToolsOptions {
  readonly lease: SandboxLease;
  readonly signal: AbortSignal;
  /** Bytes that the model is shown of what a call gave. */
  readonly outputBytes: number;
  note(text: string): Promise<void>;
}

/** Tools over one lease. */
export class AgentTools {
  readonly #options: AgentToolsOptions;
  #turn: Promise<unknown> = Promise.resolve();
  #calls = 0;

  constructor(options: AgentToolsOptions) {
    this.#options = options;
  }

  /** Begins an answer: its calls are counted anew. */
  beginStep(): void {
    this.#calls = 0;
  }

  /** As the library takes them. */
  get set() {
    const { lease } = this.#options;
    return {
      exec: {
        description: "Runs a command and gives its exit status and the end of its output.",
        inputSchema: inputs.exec,
        execute: (input: Input<"exec">) => this.#inTurn("exec", input, () => this.#exec(input)),
      },
      read: {
        description: "Reads a text file.",
        inputSchema: inputs.read,
        execute: (input: Input<"read">) => this.#inTurn("read", input, () => this.#read(input)),
      },
      write: {
        description: `Makes or replaces a text file of at most ${EDIT_BYTES_MAX} bytes.`,
        inputSchema: inputs.write,
        execute: (input: Input<"write">) =>
          this.#inTurn("write", input, async () => {
            await writeWhole(lease, input, this.#fileCall());
            return `wrote ${Buffer.byteLength(input.content)} bytes to ${input.path}`;
          }),
      },
      edit: {
        description: "Replaces a text that occurs exactly once in a file.",
        inputSchema: inputs.edit,
        execute: (input: Input<"edit">) =>
          this.#inTurn("edit", input, async () => {
            const edit = { path: input.path, old: input.old, text: input.new };
            const characters = await replaceOnce(lease, edit, this.#fileCall());
            return `${input.path} has ${characters} characters now`;
          }),
      },
    };
  }

  async #exec({ command, timeout_seconds: seconds = EXEC_SECONDS_DEFAULT }: Input<"exec">) {
    const { lease, signal, outputBytes } = this.#options;
    const { status, stdout, stderr } = await lease.invoke({
      executable: SHELL,
      arguments: ["-c", command],
      signal,
      deadlineMs: seconds * 1000,
      // One more, to know whether something is missing.
      retain: outputBytes + 1,
    });
    const parts = [
      `status ${status}`,
      ...(stdout === "" ? [] : [`stdout:\n${this.#end(stdout)}`]),
      ...(stderr === "" ? [] : [`stderr:\n${this.#end(stderr)}`]),
    ];
    return parts.join("\n");
  }

  async #read({ path, offset = 0 }: Input<"read">): Promise<string> {
    const { lease, outputBytes } = this.#options;
    const part = { path, offset, bytes: outputBytes + 1 };
    const bytes = Buffer.from(await readPart(lease, part, this.#fileCall()));
    if (bytes.length <= outputBytes) return bytes.toString("utf8");
    const start = bytes.subarray(0, outputBytes).toString("utf8");
    return `${start}\n[cut: go on with offset ${offset + outputBytes}]`;
  }

  /** Both streams share the bound. */
  #end(text: string): string {
    const most = Math.floor(this.#options.outputBytes / 2);
    const bytes = Buffer.from(text);
    if (bytes.length <= most) return text;
    const end = bytes.subarray(bytes.length - most).toString("utf8");
    return `[cut: the last ${most} bytes]\n${end}`;
  }

  #fileCall(): FileCall {
    return { signal: this.#options.signal, deadlineMs: FILE_SECONDS * 1000 };
  }

  /** Runs a call after those before it; what fails is the model's to read, unless all has ended. */
  async #inTurn(name: ToolName, input: object, call: () => Promise<string>): Promise<string> {
    this.#calls += 1;
    const isTooMany = this.#calls > STEP_CALLS_MAX;
    const run = async (): Promise<string> => {
      const { signal, note } = this.#options;
      signal.throwIfAborted();
      if (isTooMany) return `error: more than ${STEP_CALLS_MAX} calls in one answer: not done`;
      const answer = await call().catch((thrown: unknown) => {
        signal.throwIfAborted();
        return `error: ${CprgError.from(thrown).message}`;
      });
      const [first = ""] = answer.split("\n", 1);
      await note(`${name} ${shorten(JSON.stringify(input))}: ${shorten(first)}`);
      return answer;
    };
    const turn = this.#turn.then(run, run);
    this.#turn = turn.catch(() => undefined);
    return await turn;
  }
}

function shorten(text: string): string {
  return text.length <= NOTE_CHARS_MAX ? text : `${text.slice(0, NOTE_CHARS_MAX)}...`;
}
