/**
 * A job on a worker: `job.Run` seen from the caller. What a worker sends is data of somebody else's
 * host: each event is checked before anyone records it.
 */

import { z } from "zod";
import { JOB_RUN } from "../bridge/methods.ts";
import { CprgError } from "../core/errors.ts";
import { type EventDraft, OUTPUT_ROW_BYTES_MAX } from "../core/event.ts";
import type { JobSpec } from "../core/job.ts";
import { LIMIT_NAMES } from "../core/limits.ts";
import { REASONS, STATUSES, statusOf } from "../core/reasons.ts";
import type { JobItem, JobRunRequest } from "../gen/messages.ts";
import type { TimedDraft } from "../store/contract.ts";
import type { ClaimLink } from "./claim-link.ts";

/** Bytes of an event's data. */
const DATA_BYTES_MAX = 64 * 1024;
/** Characters of a name or a message in it. */
const TEXT_MAX = 4096;

const text = z.string().max(TEXT_MAX);
const count = z.number().int().min(0);
const names = z.array(text).max(64);
const limits = z.object(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, z.number().positive()])),
);
const usage = z.object({
  cpu_ms: z.number().min(0),
  memory_peak_bytes: count.nullable(),
  pids_peak: count.nullable(),
});

/** Data of each kind, as contracts.md has them; what else a worker adds is dropped. */
const DATA = {
  started: z.object({
    layers: z.record(text, z.union([z.boolean(), text])),
    missing: names,
    limits,
    interpreter: text.nullable(),
  }),
  usage: z.object({
    cpu_ms: z.number().min(0),
    memory_bytes: count.nullable(),
    pids: count.nullable(),
  }),
  violation: z.object({
    type: z.literal("seccomp_violation"),
    syscall: text.optional(),
    nr: count.optional(),
    arch: text.optional(),
  }),
  limit: z.object({
    limit: z.enum(LIMIT_NAMES as [string, ...string[]]),
    value: z.number(),
    observed: z.number(),
    sampled: z.boolean(),
  }),
  truncated: z.object({ stream: z.enum(["stdout", "stderr"]), limit_bytes: count }),
  finished: z
    .object({
      status: z.enum(STATUSES),
      exit_code: z.number().int().nullable(),
      signal: text.nullable(),
      reason: z.enum(REASONS),
      duration_ms: z.number().min(0),
      killed: count,
      usage: usage.nullable(),
      error: z.object({ message: text, step: text.optional(), hint: text.optional() }).optional(),
    })
    .refine(({ status, reason, exit_code }) => status === statusOf(reason, exit_code)),
} as const;

type DataKind = keyof typeof DATA;

/**
 * Runs a job in a sandbox of its own on the worker of a claim, and gives its events in their order,
 * `finished` as the last. Leaving the loop, or the signal, cancels it; it ends with its stream.
 *
 * @param job `killGraceSeconds` and `labels` stay here; limits are clamped by the worker's ceilings
 * @throws CprgError what the worker refuses with, `unimplemented` from one without a sandbox;
 *   `canceled` when nothing of it runs any more; `unavailable` when the stream is lost; `data_loss`
 *   for events that are none
 */
export async function* runRemoteJob(
  link: ClaimLink,
  job: JobSpec,
  { signal }: { readonly signal?: AbortSignal } = {},
): AsyncGenerator<TimedDraft, void, void> {
  const mux = await link.attached(signal);
  const call = mux.stream(JOB_RUN, { ...requestOf(job), claim: link.claim });
  const cancel = (): void => call.cancel("cancelled");
  signal?.addEventListener("abort", cancel);
  if (signal?.aborted) cancel();
  let lastSeq = 0;
  let isFinished = false;
  try {
    for await (const item of call) {
      lastSeq += 1;
      if (item.seq !== lastSeq)
        throw badEvent(`event ${item.seq} came where ${lastSeq} was to come`);
      if (isFinished) throw badEvent("it goes on after its end");
      isFinished = item.kind === "finished";
      yield { at: item.atMs, draft: draftOf(item) };
    }
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
  if (!isFinished) throw badEvent("its end is missing");
}

function requestOf({ language, code, args, env, stdinBase64, limits: asked, files }: JobSpec) {
  const isArgv = code === null;
  return {
    language: isArgv ? "" : language,
    code: Buffer.from(code ?? "", "utf8"),
    args: [...args],
    env: { ...env },
    stdin: Buffer.from(stdinBase64 ?? "", "base64"),
    limits: { ...asked },
    files: files.map(({ path, base64, mode }) => ({
      path,
      content: Buffer.from(base64, "base64"),
      mode,
    })),
  } satisfies Omit<JobRunRequest, "claim">;
}

function draftOf({ kind, output, data }: JobItem): TimedDraft["draft"] {
  if (kind === "stdout" || kind === "stderr") {
    const isRow = output.length > 0 && output.length <= OUTPUT_ROW_BYTES_MAX;
    if (!isRow) throw badEvent(`${output.length} bytes of output in one event`);
    return { kind, bytes: Uint8Array.from(output) };
  }
  if (!Object.hasOwn(DATA, kind)) throw badEvent(`an event of the kind ${shown(kind)}`);
  return { kind, data: dataOf(kind as DataKind, data) } as EventDraft;
}

function dataOf(kind: DataKind, data: string): unknown {
  if (Buffer.byteLength(data) > DATA_BYTES_MAX) throw badEvent(`the data of ${kind} are too long`);
  let json: unknown;
  try {
    json = JSON.parse(data);
  } catch {
    throw badEvent(`the data of ${kind} are no JSON`);
  }
  const parsed = DATA[kind].safeParse(json);
  if (parsed.success) return parsed.data;
  throw badEvent(`the data of ${kind} are not what they have to be`);
}

function shown(word: string): string {
  return JSON.stringify(word.slice(0, 64));
}

function badEvent(what: string): CprgError {
  return new CprgError("data_loss", `Cannot take the events of a job: ${what}`, {
    reason: "BAD_EVENT",
  });
}
