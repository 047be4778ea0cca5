/**
 * The control plane's end of the wire: accepts connections, checks what a worker says of itself
 * before any frame, and hands over a stream of frames for each worker that was let in.
 */

import {
  createSecureServer,
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import {
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import { assert, CprgError } from "../core/errors.ts";
import { type Envelope, WorkerBridge } from "../gen/outrigger/v1/bridge_pb.js";
import { statusOf } from "./connect-errors.ts";
import type { FrameStream } from "./contract.ts";
import { FrameChannel } from "./frame-channel.ts";
import { answer, respondEarly } from "./http2-answer.ts";
import { CLOSE_MS_MAX, HANDSHAKE_MS_MAX, MESSAGE_BYTES_MAX } from "./limits.ts";
import {
  bearerToken,
  type ControlMetadata,
  controlHeaders,
  type Header,
  parseRegistration,
  type Registration,
} from "./metadata.ts";
import { keepAlive, type PingOptions } from "./ping.ts";

/** Where a connection comes from. */
export interface PeerAddress {
  readonly address: string;
  /** Common name of its verified client certificate. */
  readonly certificateName: string | undefined;
}

/** Who may come in. The checks are made in this order (proto/PROTOCOL.md section 2). */
export interface Admission<Identity> {
  /** @throws CprgError `unauthenticated`: BAD_TOKEN, TOKEN_EXPIRED, TOKEN_REVOKED */
  authenticate(token: string, from: PeerAddress): Promise<Identity> | Identity;
  /**
   * Lets a worker in, whose metadata keep the rules.
   *
   * @throws CprgError `permission_denied`: ID_TAKEN, ID_NOT_ALLOWED, WORKER_REMOVED;
   *   `resource_exhausted`: TOO_MANY_WORKERS; `unavailable`: SHUTDOWN
   */
  admit(
    registration: Registration,
    identity: Identity,
    from: PeerAddress,
  ): Promise<Admitted> | Admitted;
}

/** A worker that is in. */
export interface Admitted {
  readonly control: ControlMetadata;
  /** Called once, when the worker has been told. */
  connected(stream: FrameStream): void;
}

/** Keys and certificates, PEM. */
export interface ListenerTls {
  readonly key: string;
  readonly certificate: string;
  /** Certificates of the authority of workers; with it, each must show one that it signed. */
  readonly clientAuthority?: string;
}

export interface ListenerOptions<Identity> {
  readonly host: string;
  /** 0: any that is free. */
  readonly port: number;
  readonly tls?: ListenerTls;
  readonly admission: Admission<Identity>;
  /** The admission threw what is no CprgError: the worker hears `internal`, this hears all. */
  readonly onBug?: (error: unknown) => void;
  readonly ping?: PingOptions;
  /** From a connection to its first stream; default {@link HANDSHAKE_MS_MAX}. */
  readonly handshakeMs?: number;
  /** Connections at once; more are closed before a byte is read. */
  readonly connectionsMax?: number;
}

/** A listener that accepts connections. */
export interface Listener {
  readonly port: number;
  /**
   * Accepts no more, and resolves when every connection is gone. Streams are ended by those who have
   * them; connections that are there after `graceMs` are cut.
   */
  close(options?: { readonly graceMs?: number }): Promise<void>;
}

const CONNECTIONS_MAX_DEFAULT = 20_000;
const STREAMS_PER_CONNECTION = 16;
const HEADER_LIST_BYTES_MAX = 16_384;

/** What the handler needs of the HTTP/2 stream beneath it. */
interface Arrival {
  readonly stream: ServerHttp2Stream;
  readonly headers: readonly Header[];
  readonly from: PeerAddress;
}

const ARRIVAL = createContextKey<Arrival | undefined>(undefined);

/**
 * Listens for workers.
 *
 * @throws CprgError `unavailable` when the address cannot be used
 */
export async function listen<Identity>(options: ListenerOptions<Identity>): Promise<Listener> {
  const handler = bridgeHandler(options);
  const server = createHttp2(options.tls);
  server.maxConnections = options.connectionsMax ?? CONNECTIONS_MAX_DEFAULT;
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    watch(session, options);
  });
  server.on("stream", (stream: ServerHttp2Stream, headers, _flags, rawHeaders) => {
    if (headers[":path"]?.split("?", 1)[0] !== handler.requestPath) {
      stream.on("error", () => undefined);
      stream.respond({ ":status": 404 }, { endStream: true });
      return;
    }
    const arrival = { stream, headers: pairs(rawHeaders ?? []), from: addressOf(stream) };
    const contextValues = createContextValues().set(ARRIVAL, arrival);
    // What goes wrong on the way has ended the stream, which its channel has seen.
    answer(handler, { stream, headers, contextValues }).catch(() => stream.destroy());
  });
  await bind(server, options);
  const { port } = server.address() as AddressInfo;
  return { port, close: ({ graceMs = CLOSE_MS_MAX } = {}) => closeAll(server, sessions, graceMs) };
}

function createHttp2(tls: ListenerTls | undefined): Http2Server {
  const settings = {
    maxConcurrentStreams: STREAMS_PER_CONNECTION,
    maxHeaderListSize: HEADER_LIST_BYTES_MAX,
  };
  if (tls === undefined) return createServer({ settings });
  const { key, certificate: cert, clientAuthority: ca } = tls;
  const clients = ca === undefined ? {} : { ca, requestCert: true, rejectUnauthorized: true };
  const handshakeTimeout = HANDSHAKE_MS_MAX;
  const options = { key, cert, minVersion: "TLSv1.2" as const, handshakeTimeout, ...clients };
  const server = createSecureServer({ ...options, settings });
  // A client that fails the handshake is none of ours; its connection is closed already.
  server.on("tlsClientError", () => undefined);
  return server;
}

/** A connection that opens no stream, is silent, or breaks HTTP/2 goes. */
function watch(
  session: ServerHttp2Session,
  { ping, handshakeMs = HANDSHAKE_MS_MAX }: Pick<ListenerOptions<never>, "ping" | "handshakeMs">,
): void {
  const timer = setTimeout(() => session.destroy(), handshakeMs);
  session.once("stream", () => clearTimeout(timer));
  session.once("close", () => clearTimeout(timer));
  session.on("error", () => undefined);
  keepAlive(session, ping);
}

type Doors<Identity> = Pick<ListenerOptions<Identity>, "admission" | "onBug">;

function bridgeHandler<Identity>(doors: Doors<Identity>): UniversalHandler {
  const router = createConnectRouter({
    grpcWeb: false,
    acceptCompression: [],
    readMaxBytes: MESSAGE_BYTES_MAX,
    writeMaxBytes: MESSAGE_BYTES_MAX,
  });
  router.service(WorkerBridge, {
    connect: (requests, context) => serveStream(doors, requests, context),
  });
  const [handler] = router.handlers;
  assert(handler !== undefined, "the bridge has one method");
  return handler;
}

async function* serveStream<Identity>(
  { admission, onBug }: Doors<Identity>,
  requests: AsyncIterable<Envelope>,
  context: HandlerContext,
): AsyncGenerator<Envelope, void, undefined> {
  const arrival = context.values.get(ARRIVAL);
  assert(arrival !== undefined, "a stream has an arrival");
  let channel: FrameChannel;
  try {
    const admitted = await register(admission, arrival);
    for (const [name, value] of controlHeaders(admitted.control)) {
      context.responseHeader.set(name, value);
    }
    respondEarly(arrival.stream, context.responseHeader);
    channel = new FrameChannel(requests, () => cutLater(arrival.stream));
    arrival.stream.once("close", () => channel.close(connectionLost()));
    // It may be gone already, and whoever admitted it is to hear of that.
    if (arrival.stream.closed || arrival.stream.destroyed) channel.close(connectionLost());
    admitted.connected(channel);
  } catch (thrown) {
    if (CprgError.is(thrown)) throw statusOf(thrown);
    // Connect says no more than `internal error` to the worker.
    onBug?.(thrown);
    throw thrown;
  }
  yield* channel.outgoing();
  if (channel.error !== undefined) throw statusOf(channel.error);
}

async function register<Identity>(
  admission: Admission<Identity>,
  { headers, from }: Arrival,
): Promise<Admitted> {
  const identity = await admission.authenticate(bearerToken(headers), from);
  return await admission.admit(parseRegistration(headers), identity, from);
}

/** A peer that does not take the end of the stream loses its connection. */
function cutLater(stream: ServerHttp2Stream): void {
  if (stream.closed) return;
  const timer = setTimeout(() => stream.session?.destroy(), CLOSE_MS_MAX);
  stream.once("close", () => clearTimeout(timer));
}

function connectionLost(): CprgError {
  return new CprgError("unavailable", "the connection was lost");
}

function addressOf(stream: ServerHttp2Stream): PeerAddress {
  const socket = stream.session?.socket;
  // Not `in`: the session's socket is a proxy that answers to it with no.
  const secure = socket as Partial<TLSSocket> | undefined;
  const name = secure?.authorized ? secure.getPeerCertificate?.().subject?.CN : undefined;
  const certificateName = typeof name === "string" ? name : undefined;
  return { address: socket?.remoteAddress ?? "", certificateName };
}

/** Headers in pairs, each as often as it came; without those of HTTP/2 itself. */
function pairs(raw: readonly string[]): Header[] {
  const headers: Header[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = "", value = ""] = raw.slice(at, at + 2);
    if (!name.startsWith(":")) headers.push([name.toLowerCase(), value]);
  }
  return headers;
}

function bind(server: Http2Server, { host, port }: { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => {
      const message = `Cannot listen on ${host}:${port}: ${cause.message}`;
      reject(new CprgError("unavailable", message, { op: "listen for workers", cause }));
    });
    server.listen(port, host, resolve);
  });
}

async function closeAll(
  server: Http2Server,
  sessions: ReadonlySet<ServerHttp2Session>,
  graceMs: number,
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  for (const session of sessions) session.close();
  const timer = setTimeout(() => {
    for (const session of sessions) session.destroy();
  }, graceMs);
  await closed;
  clearTimeout(timer);
}
