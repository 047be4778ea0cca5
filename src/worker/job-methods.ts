/** `job.Run`: a program in a sandbox of its own, with limits, as the events of its log. */

import type { CallContext, HandlerTable } from "../bridge/contract.ts";
import { JOB_RUN } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import type { JobItem, JobRunRequest } from "../gen/messages.ts";
import type { ClaimHolder } from "./claim-holder.ts";

/** An event of a job: output as bytes, anything else as JSON. */
export interface JobEvent {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly kind: string;
  readonly output?: Uint8Array;
  readonly data?: string;
}

/** How a job is run. */
export interface JobRunOptions {
  /** Ends it: its sandbox is killed. */
  readonly signal: AbortSignal;
  /** Takes its events in order; awaited, so that whoever reads slowly holds the program back. */
  emit(event: JobEvent): Promise<void>;
}

/** Who runs jobs: the local engine, which a worker is given by its program. */
export interface JobRunner {
  /**
   * Runs one to its last event, `finished`; resolves when nothing of its sandbox is left.
   *
   * @throws CprgError `invalid_argument` naming the field, before anything has run
   */
  run(request: JobRunRequest, options: JobRunOptions): Promise<void>;
}

/** What jobs are served from. */
export interface JobMethodsOptions {
  readonly holder: ClaimHolder;
  readonly jobs: JobRunner;
}

/** Adds the method. */
export function serveJobs(handlers: HandlerTable, options: JobMethodsOptions): void {
  handlers.serverStream(JOB_RUN, (request, context) => runJob(request, { ...options, context }));
}

async function* runJob(
  request: JobRunRequest,
  { holder, jobs, context }: JobMethodsOptions & { readonly context: CallContext },
): AsyncGenerator<JobItem, void, void> {
  const { calls } = holder.use(request.claim);
  using _call = calls.begin(context);
  const { signal } = context;
  const events = new EventHandoff(signal);
  const ended = jobs.run(request, { signal, emit: (event) => events.give(event) });
  ended.then(
    () => events.end(),
    (error: unknown) => events.end(CprgError.from(error, "run a job")),
  );
  try {
    for (let seq = 1; ; seq += 1) {
      const event = await events.take();
      if (event === null) return;
      const { at: atMs, kind, output = new Uint8Array(), data = "" } = event;
      yield { seq, atMs, kind, output, data };
    }
  } finally {
    // Whatever ended the call: its end says that nothing of the job is left.
    await ended.catch(() => undefined);
  }
}

/** Hands events from a job to its call, one at a time. */
class EventHandoff {
  readonly #signal: AbortSignal;
  #offered: { readonly event: JobEvent; readonly taken: () => void } | null = null;
  #end: { readonly error: CprgError | undefined } | null = null;
  #wake: () => void = () => undefined;

  /** @param signal the call is given up: what comes is dropped */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      this.#offered?.taken();
      this.#offered = null;
      this.#wake();
    });
  }

  /** Resolves when the event was taken, or nobody will. One at a time. */
  give(event: JobEvent): Promise<void> {
    if (this.#signal.aborted) return Promise.resolve();
    return new Promise((taken) => {
      this.#offered = { event, taken };
      this.#wake();
    });
  }

  end(error?: CprgError): void {
    this.#end = { error };
    this.#wake();
  }

  /** The next event; null at the end. @throws the job's error; the signal's reason */
  async take(): Promise<JobEvent | null> {
    for (;;) {
      this.#signal.throwIfAborted();
      const offered = this.#offered;
      if (offered !== null) {
        this.#offered = null;
        offered.taken();
        return offered.event;
      }
      if (this.#end?.error !== undefined) throw this.#end.error;
      if (this.#end !== null) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
