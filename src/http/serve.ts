/** The listener: Bun.serve with its bounds, and WebSockets that are fed with logs. */

import type { Hono } from "hono";
import { CprgError } from "../core/errors.ts";
import { SharedTurns } from "../core/turn.ts";
import { type AppOptions, createApp } from "./app.ts";
import { partyOf } from "./auth.ts";
import type { AppEnv, Listener } from "./env.ts";
import { ANSWER_IDLE_SECONDS } from "./idle.ts";
import type { LogStream } from "./log-stream.ts";

/**
 * The runtime's own bound, which has to hold for files of any size too. What takes JSON looks at the
 * declared length before it reads anything, and counts what comes; nothing is read ahead of that.
 */
const RUNTIME_BODY_BYTES_MAX = Number.MAX_SAFE_INTEGER;
/** A stream has no use for messages; a close or pong frame fits. */
const STREAM_MESSAGE_BYTES_MAX = 4 * 1024;
/** Never reached: a stream waits at its own, smaller bound, plus one event. */
const STREAM_BACKPRESSURE_BYTES_MAX = 8 * 1024 * 1024;
/** Seconds after which a WebSocket whose peer answers no ping is closed. */
const STREAM_IDLE_SECONDS = 120;
/** How long requests may take to end, and streams to send the rest, when the server stops. */
export const STOP_TIMEOUT_MS = 5000;
/** How long streams that were too slow may take to say that they end. */
const CLOSE_TIMEOUT_MS = 1000;

/** What a server works with. */
export interface ServerOptions extends AppOptions {
  readonly hostname: string;
  /** 0: any free one. */
  readonly port: number;
  /** In PEM; without it HTTP is served in the clear. */
  readonly tls?: { readonly cert: string; readonly key: string };
}

/** A server that listens. */
export interface RunningServer {
  readonly url: URL;
  readonly port: number;
  /** WebSockets that are open. */
  readonly openStreams: number;
  /** Takes no more requests, lets open ones end for a bounded time, and closes everything. */
  stop(): Promise<void>;
}

/**
 * Listens.
 *
 * @throws CprgError `unavailable` when the address cannot be had
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const streams = new Set<LogStream>();
  const counts = { streams: () => streams.size, ...options.counts };
  const app = createApp({ ...options, counts });
  const server = listen(options, { app, streams });
  return {
    url: server.url,
    port: server.port ?? options.port,
    get openStreams() {
      return streams.size;
    },
    stop: () => stopServer(server, streams),
  };
}

type StreamServer = Bun.Server<LogStream>;

interface Parts {
  readonly app: Hono<AppEnv>;
  readonly streams: Set<LogStream>;
}

function listen(options: ServerOptions, { app, streams }: Parts): StreamServer {
  const { hostname, port, tls } = options;
  // Requests come in bursts, and each takes the event loop for a part of a millisecond before it first
  // waits for anything. So a burst is begun over several turns: what runs goes on meanwhile, and the
  // runtime is not kept in its loop of accepting connections, in which nobody else is served.
  const turns = new SharedTurns();
  try {
    return Bun.serve<LogStream>({
      hostname,
      port,
      idleTimeout: ANSWER_IDLE_SECONDS,
      maxRequestBodySize: RUNTIME_BODY_BYTES_MAX,
      development: false,
      // `development: false` alone switches it on, and another process could share the port.
      reusePort: false,
      ...(tls === undefined ? {} : { tls }),
      fetch: async (request, server) => {
        await (turns.enter(partyOf(options.keys, request)) ?? undefined);
        return await app.fetch(request, { listener: listenerOf(server) });
      },
      websocket: {
        maxPayloadLength: STREAM_MESSAGE_BYTES_MAX,
        backpressureLimit: STREAM_BACKPRESSURE_BYTES_MAX,
        idleTimeout: STREAM_IDLE_SECONDS,
        perMessageDeflate: false,
        open: (socket) => {
          streams.add(socket.data);
          void socket.data.opened(socket);
        },
        message: (socket) => socket.data.heard(socket),
        drain: (socket) => socket.data.drained(),
        close: (socket) => {
          streams.delete(socket.data);
          socket.data.closed();
        },
      },
    });
  } catch (cause) {
    throw cannotListen(`${hostname}:${port}`, cause);
  }
}

function listenerOf(server: StreamServer): Listener {
  return {
    upgrade: (request, stream) => server.upgrade(request, { data: stream }),
    setIdleTimeout: (request, seconds) => server.timeout(request, seconds),
  };
}

async function stopServer(server: StreamServer, streams: ReadonlySet<LogStream>): Promise<void> {
  const stopped = server.stop();
  const rest = [...streams].map(async (stream) => await stream.runOut());
  if (!(await within(STOP_TIMEOUT_MS, Promise.all([stopped, ...rest])))) {
    for (const stream of streams) stream.closed();
    await within(CLOSE_TIMEOUT_MS, stopped);
  }
  await server.stop(true);
}

/** Whether something came to its end within a time. */
async function within(timeoutMs: number, work: Promise<unknown>): Promise<boolean> {
  const { promise: isLate, resolve } = Promise.withResolvers<false>();
  const timer = setTimeout(() => resolve(false), timeoutMs);
  try {
    return await Promise.race([work.then(() => true), isLate]);
  } finally {
    clearTimeout(timer);
  }
}

function cannotListen(address: string, cause: unknown): CprgError {
  const code = (cause as NodeJS.ErrnoException).code;
  const state = code === "EADDRINUSE" ? "another program listens there" : (code ?? String(cause));
  return new CprgError("unavailable", `Cannot listen on "${address}": ${state}`, {
    op: "listen",
    hint: "Choose another address with --addr or CPRG_ADDR",
    cause,
  });
}
