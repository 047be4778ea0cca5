/** `/v1/execs`: look, wait, follow, write to, signal, resize and cancel what runs in a sandbox. */

import { type Context, Hono } from "hono";
import { CprgError, invalid } from "../../core/errors.ts";
import type { ExecRecord } from "../../core/exec.ts";
import type { Log } from "../../core/log.ts";
import { INPUT_WAITING_BYTES_MAX } from "../../sandboxes/bounds.ts";
import type { ExecService } from "../../sandboxes/exec-service.ts";
import { sizeOf } from "../../sandboxes/spec.ts";
import { execView } from "../../sandboxes/views.ts";
import { isUpgrade } from "../auth.ts";
import { type BodyRules, readBytes, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { JobStream } from "../job-stream.ts";
import { eofParameters, readParameters, resultParameters } from "../parameters.ts";
import { type Query, readQuery } from "../query.ts";
import { readReplay, replayResponse } from "../replay-answer.ts";
import { signalRequest, sizeRequest } from "../sandbox-schemas.ts";
import { eventStream } from "../sse.ts";
import { bytesResponse, textResponse } from "../streamed.ts";
import { patiently, readFromSeq } from "./jobs.ts";
import { type StreamPlaces, upgradeRequired } from "./stream.ts";

/** How long an answer to input waits for the program to take it. */
const INPUT_WAIT_MS = 10_000;

/** What the routes work with. */
export interface ExecRoutesOptions {
  readonly execs: ExecService;
  readonly log: Log;
  readonly places: StreamPlaces;
  readonly stallMs: number;
  readonly cancelWaitMs: number;
  readonly bodies: BodyRules;
  /** A body that broke off while it was sent. */
  onBroken(c: Context<AppEnv>, error: unknown): void;
}

/** The routes beneath `/v1/execs`. */
export function execRoutes(options: ExecRoutesOptions): Hono<AppEnv> {
  const { execs } = options;
  const app = new Hono<AppEnv>();
  const tenantOf = (c: Context<AppEnv>): string => c.get("principal").tenant;

  app.get("/:id", async (c) => {
    readQuery(c, []);
    return c.json(execView(await execs.get(tenantOf(c), c.req.param("id"))));
  });

  app.delete("/:id", async (c) => {
    readQuery(c, []);
    const exec = await patiently(c, options.cancelWaitMs, (bounds) =>
      execs.cancel(tenantOf(c), c.req.param("id"), bounds),
    );
    return c.json(execView(exec), exec.status === "running" ? 202 : 200);
  });

  app.get("/:id/result", async (c) => {
    const { wait_seconds: waitSeconds } = readParameters(c, resultParameters);
    const exec = await patiently(c, waitSeconds * 1000, (bounds) =>
      execs.wait(tenantOf(c), c.req.param("id"), bounds),
    );
    return await textResponse(execs.result(exec), {
      status: exec.status === "running" ? 202 : 200,
      headers: { "Content-Type": "application/json" },
      onBroken: (error) => options.onBroken(c, error),
    });
  });

  app.get("/:id/replay", (c) => replay(c, options));
  app.get("/:id/events", async (c) => {
    const query = readQuery(c, ["from_seq"]);
    const exec = await execs.get(tenantOf(c), c.req.param("id"));
    return await execEvents(c, {
      exec,
      fromSeq: readResume(c, query),
      headers: {},
      execs,
      options,
    });
  });
  app.get("/:id/stream", (c) => stream(c, options));
  app.post("/:id/input", (c) => input(c, options));

  app.post("/:id/signal", async (c) => {
    readQuery(c, []);
    const name = signalRequest(await readJson(c, options.bodies));
    (await execs.running(tenantOf(c), c.req.param("id"))).signal(name);
    return c.body(null, 204);
  });

  app.post("/:id/resize", async (c) => {
    readQuery(c, []);
    const size = sizeOf(sizeRequest(await readJson(c, options.bodies)));
    (await execs.running(tenantOf(c), c.req.param("id"))).resize(size);
    return c.body(null, 204);
  });
  return app;
}

/** Where an event stream goes on: `Last-Event-ID` names the last event that was seen. */
function readResume(c: Context<AppEnv>, query: Query): number {
  const last = c.req.header("last-event-id");
  if (last === undefined) return readFromSeq(query);
  if (/^\d{1,15}$/.test(last)) return Number(last) + 1;
  throw invalid("Last-Event-ID", `Cannot go on after event "${last.slice(0, 64)}": no seq`);
}

/** An exec's events as they come. */
export async function execEvents(
  c: Context<AppEnv>,
  asked: {
    readonly exec: ExecRecord;
    readonly fromSeq: number;
    readonly headers: Record<string, string>;
    readonly execs: ExecService;
    readonly options: Pick<ExecRoutesOptions, "onBroken">;
  },
): Promise<Response> {
  const { exec, fromSeq, headers, execs, options } = asked;
  const pages = execs.subscribe(exec, { fromSeq, signal: c.req.raw.signal });
  const first = { event: "exec", data: { exec_id: exec.id, sandbox_id: exec.sandboxId } };
  const bytes = encoded(eventStream(pages, first));
  return await bytesResponse(bytes, {
    headers: { "Content-Type": "text/event-stream", ...headers },
    onBroken: (error) => options.onBroken(c, error),
  });
}

async function* encoded(pieces: AsyncGenerator<string>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for await (const piece of pieces) yield encoder.encode(piece);
}

async function replay(c: Context<AppEnv, "/:id/replay">, options: ExecRoutesOptions) {
  const { execs } = options;
  const asked = readReplay(c);
  const exec = await execs.get(c.get("principal").tenant, c.req.param("id"));
  return await replayResponse(asked, {
    events: (fromSeq) => execs.replay(exec, fromSeq),
    sealed: () => execs.exportLog(exec),
    onBroken: (error) => options.onBroken(c, error),
  });
}

async function stream(c: Context<AppEnv, "/:id/stream">, options: ExecRoutesOptions) {
  const { execs, log, places, stallMs } = options;
  const query = readQuery(c, isUpgrade(c) ? ["from_seq", "key"] : ["from_seq"]);
  const { tenant } = c.get("principal");
  const exec = await execs.get(tenant, c.req.param("id"));
  const fromSeq = readFromSeq(query);
  const { listener } = c.env ?? {};
  if (!isUpgrade(c) || listener === undefined) throw upgradeRequired();
  const requestId = c.get("requestId");
  places.take(tenant);
  const socket = new JobStream({
    stallMs,
    subscribe: (signal) => execs.subscribe(exec, { fromSeq, signal }),
    hasEnded: async () => (await execs.get(tenant, exec.id)).status !== "running",
    onFailure: (error) => log.error("stream failed", { request_id: requestId, error }),
    onClosed: () => places.giveBack(tenant),
  });
  // What is returned after an upgrade is not sent.
  if (listener.upgrade(c.req.raw, socket)) return new Response(null);
  socket.closed();
  throw upgradeRequired();
}

/** 204 when the program has taken it, 202 when it waits for the program. */
async function input(c: Context<AppEnv, "/:id/input">, options: ExecRoutesOptions) {
  const isEnd = readParameters(c, eofParameters).eof === "true";
  const exec = await options.execs.running(c.get("principal").tenant, c.req.param("id"));
  const bytes = await readBytes(c, options.bodies);
  if (bytes.length > INPUT_WAITING_BYTES_MAX) throw tooMuch();
  const written = writeAll(exec, bytes, isEnd).then(() => 204 as const);
  // Whatever comes after the answer is the exec's end.
  written.catch(() => undefined);
  const status = await patiently(c, INPUT_WAIT_MS, async ({ waitMs }) => {
    const waited = Promise.withResolvers<202>();
    const timer = setTimeout(() => waited.resolve(202), waitMs);
    try {
      return await Promise.race([written, waited.promise]);
    } finally {
      clearTimeout(timer);
    }
  });
  return c.body(null, status);
}

async function writeAll(
  exec: Awaited<ReturnType<ExecService["running"]>>,
  bytes: Uint8Array,
  isEnd: boolean,
): Promise<void> {
  const written = bytes.length === 0 ? Promise.resolve() : exec.write(bytes);
  // Asked for at once, so that nothing of a later request comes in between.
  const closed = isEnd ? exec.closeInput() : Promise.resolve();
  await Promise.all([written, closed]);
}

function tooMuch(): CprgError {
  return new CprgError(
    "invalid_argument",
    `Cannot write input: above ${INPUT_WAITING_BYTES_MAX} bytes at once`,
    { reason: "BODY_TOO_LARGE", hint: "Send it in parts" },
  );
}
