/** `/v1/execs`: look, wait, follow, write to, signal, resize and cancel what runs in a sandbox. */

import { type Context, Hono } from "hono";
import { CprgError } from "../../core/errors.ts";
import { INPUT_WAITING_BYTES_MAX } from "../../sandboxes/bounds.ts";
import type { ExecService } from "../../sandboxes/exec-service.ts";
import { sizeOf } from "../../sandboxes/spec.ts";
import { execView } from "../../sandboxes/views.ts";
import { type BodyRules, readBytes, readJson } from "../body.ts";
import type { AppEnv } from "../env.ts";
import { readFollow } from "../follow.ts";
import { followExec } from "../follow-exec.ts";
import { eofParameters, readParameters, resultParameters } from "../parameters.ts";
import { patiently } from "../patiently.ts";
import { readQuery } from "../query.ts";
import { readReplay, replayResponse } from "../replay-answer.ts";
import { signalRequest, sizeRequest } from "../sandbox-schemas.ts";
import type { StreamedAnswers } from "../streamed.ts";
import { readSocketStart, type UpgradeRules, upgradeResponse } from "../upgrade.ts";

/** How long an answer to input waits for the program to take it. */
const INPUT_WAIT_MS = 10_000;

/** What the routes work with. */
export interface ExecRoutesOptions {
  readonly execs: ExecService;
  readonly sockets: UpgradeRules;
  readonly cancelWaitMs: number;
  readonly bodies: BodyRules;
  readonly streamed: StreamedAnswers;
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
    return await options.streamed.text(c, execs.result(exec), {
      status: exec.status === "running" ? 202 : 200,
      headers: { "Content-Type": "application/json" },
    });
  });

  app.get("/:id/replay", (c) => replay(c, options));
  app.get("/:id/events", async (c) => {
    const fromSeq = readFollow(c);
    const exec = await execs.get(tenantOf(c), c.req.param("id"));
    return await followExec(c, options.streamed, { execs, exec, fromSeq });
  });
  app.get("/:id/stream", (c) => stream(c, options));
  app.post("/:id/input", (c) => input(c, options));

  app.post("/:id/signal", async (c) => {
    readQuery(c, []);
    // Looked for first: what is another tenant's answers nothing about a body.
    const exec = await execs.running(tenantOf(c), c.req.param("id"));
    exec.signal(signalRequest(await readJson(c, options.bodies)));
    return c.body(null, 204);
  });

  app.post("/:id/resize", async (c) => {
    readQuery(c, []);
    const exec = await execs.running(tenantOf(c), c.req.param("id"));
    exec.resize(sizeOf(sizeRequest(await readJson(c, options.bodies))));
    return c.body(null, 204);
  });
  return app;
}

async function replay(c: Context<AppEnv, "/:id/replay">, options: ExecRoutesOptions) {
  const { execs, streamed } = options;
  const asked = readReplay(c);
  const exec = await execs.get(c.get("principal").tenant, c.req.param("id"));
  return await replayResponse(c, streamed, {
    asked,
    source: {
      events: (fromSeq) => execs.replay(exec, fromSeq),
      sealed: () => execs.exportLog(exec),
    },
  });
}

async function stream(c: Context<AppEnv, "/:id/stream">, options: ExecRoutesOptions) {
  const { execs, sockets } = options;
  const fromSeq = readSocketStart(c);
  const { tenant } = c.get("principal");
  const exec = await execs.get(tenant, c.req.param("id"));
  return upgradeResponse(c, sockets, {
    subscribe: (signal) => execs.subscribe(exec, { fromSeq, signal }),
    hasEnded: async () => (await execs.get(tenant, exec.id)).status !== "running",
  });
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
  const status = await patiently(c, INPUT_WAIT_MS, async ({ waitMs, signal }) => {
    const waited = Promise.withResolvers<202>();
    const stop = (): void => waited.resolve(202);
    const timer = setTimeout(stop, waitMs);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    try {
      return await Promise.race([written, waited.promise]);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
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
