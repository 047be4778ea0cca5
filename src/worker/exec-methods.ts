/** `exec.*`: programs of a claim, started, followed, fed and signalled. */

import type { HandlerTable, StreamContext } from "../bridge/contract.ts";
import {
  EXEC_ATTACH,
  EXEC_INPUT,
  EXEC_RESIZE,
  EXEC_SIGNAL,
  EXEC_START,
} from "../bridge/methods.ts";
import { CprgError, invalid } from "../core/errors.ts";
import type { ExecAttachRequest, ExecItem, ExecStartRequest } from "../gen/messages.ts";
import type { Exec } from "../provider/contract.ts";
import { canReattach } from "./capabilities.ts";
import type { ClaimHolder, HeldClaim } from "./claim-holder.ts";
import { type ExecOrder, INPUT_BYTES_MAX, parseExecStart, terminalSize } from "./exec-request.ts";
import { exitOfFailure, RunningExec } from "./running-exec.ts";

/** What execs are served from. */
export interface ExecMethodsOptions {
  readonly holder: ClaimHolder;
  /** Variables of every exec, beneath those of its claim. */
  readonly variables: Readonly<Record<string, string>>;
}

/** Adds the methods. */
export function serveExecs(handlers: HandlerTable, options: ExecMethodsOptions): void {
  const { holder } = options;
  handlers
    .serverStream(EXEC_START, (request, context) => start(request, { context, options }))
    .serverStream(EXEC_ATTACH, (request, context) => attach(request, { context, options }))
    .unary(EXEC_INPUT, async ({ claim, execId, input, close, offset }, context) => {
      if (input.length > INPUT_BYTES_MAX) throw invalid("input", `above ${INPUT_BYTES_MAX} bytes`);
      const { execs, calls } = holder.use(claim);
      using _call = calls.begin(context);
      const { signal } = context;
      return { takenBytes: await execs.find(execId).input(input, { close, offset, signal }) };
    })
    .unary(EXEC_RESIZE, ({ claim, execId, pty }) => {
      const exec = holder.use(claim).execs.find(execId);
      exec.resize(terminalSize(pty ?? { cols: 0, rows: 0 }));
      return {};
    })
    .unary(EXEC_SIGNAL, ({ claim, execId, signal }) => {
      holder.use(claim).execs.find(execId).signal(signal);
      return {};
    });
}

interface Call {
  readonly context: StreamContext;
  readonly options: ExecMethodsOptions;
}

async function* start(
  request: ExecStartRequest,
  call: Call,
): AsyncGenerator<Partial<ExecItem>, void, void> {
  const { holder, variables } = call.options;
  const claim = holder.use(request.claim);
  const order = parseExecStart(request, { ...variables, HOME: claim.place.home, ...claim.env });
  const { signal } = call.context;
  let exec: RunningExec;
  try {
    exec = await claim.execs.start(order.id, async () => {
      return new RunningExec(await startProgram(claim, order, signal), order);
    });
  } catch (error) {
    if (!(error instanceof NeverRan)) throw error;
    yield { exit: exitOfFailure(error.failure), seq: 1 };
    return;
  }
  yield* follow(exec, 1, { ...call, claim });
}

async function* attach(
  request: ExecAttachRequest,
  call: Call,
): AsyncGenerator<Partial<ExecItem>, void, void> {
  const claim = call.options.holder.use(request.claim);
  const exec = claim.execs.find(request.execId);
  const fromSeq = Math.max(1, request.nextSeq);
  // What comes before was consumed, whatever credit had said of it when the stream was lost.
  if (fromSeq > exec.log.oldestSeq) exec.log.acknowledge(Math.min(fromSeq, exec.log.nextSeq) - 1);
  yield* follow(exec, fromSeq, { ...call, claim });
}

/** Gives the items of an exec from one on. A call that is cancelled takes its exec with it. */
async function* follow(
  exec: RunningExec,
  fromSeq: number,
  { context, claim }: Call & { readonly claim: HeldClaim },
): AsyncGenerator<ExecItem, void, void> {
  const isKept = canReattach(context.peer);
  context.onAcknowledged((count) => exec.log.acknowledge(fromSeq + count - 1));
  let isReplaced = false;
  try {
    for await (const item of exec.log.read(fromSeq, context.signal)) {
      // Without credit an item has been sent when the next one is asked for.
      if (!context.hasCredit) exec.log.acknowledge(item.seq - 1);
      yield item;
    }
    claim.execs.sent(exec, { isKept });
  } catch (error) {
    isReplaced = CprgError.is(error) && error.reason === "REPLACED" && !context.signal.aborted;
    throw error;
  } finally {
    const isLost = isKept && isStreamLoss(context.signal);
    if (context.signal.aborted && !isReplaced && !isLost) await exec.kill("user");
  }
}

/** A call that is aborted because its stream has ended, and not by its caller. */
function isStreamLoss({ reason }: AbortSignal): boolean {
  return CprgError.is(reason) && reason.code === "unavailable";
}

/** The program could not be started: data for the caller, no error of the call. */
class NeverRan extends Error {
  readonly failure: CprgError;

  constructor(failure: CprgError) {
    super(failure.message);
    this.failure = failure;
  }
}

/** Errors that are no program's: this worker cannot do what is asked, or there is no such directory. */
const REFUSALS: readonly string[] = [
  "invalid_argument",
  "canceled",
  "resource_exhausted",
  "aborted",
  "unavailable",
  "unimplemented",
  "not_found",
  "permission_denied",
];
const DIRECTORY_REASONS: readonly string[] = ["IS_LINK", "NOT_DIRECTORY"];

function isRefusal({ code, reason = "" }: CprgError): boolean {
  if (reason.startsWith("PROGRAM_")) return false;
  return REFUSALS.includes(code) || DIRECTORY_REASONS.includes(reason);
}

async function startProgram(
  { place, ending }: HeldClaim,
  { spec }: ExecOrder,
  signal: AbortSignal,
): Promise<Exec> {
  const either = AbortSignal.any([signal, ending]);
  try {
    return await place.exec({ ...spec, signal: either });
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (!CprgError.is(error) || isRefusal(error)) throw error;
    throw new NeverRan(error);
  }
}
