/** A TCP connection to a host, straight or through a proxy with CONNECT (RFC 9110 section 9.3.6). */

import { connect as connectTcp, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { CprgError } from "../core/errors.ts";

/** Bytes of a proxy's answer. */
const ANSWER_BYTES_MAX = 8192;

/** Where to. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** How to get there. */
export interface SocketOptions {
  /** `http://` or `https://`, with user and password where it wants them. */
  readonly proxy?: URL | undefined;
  /** Speaks TLS with the target; ALPN is h2. */
  readonly tls?: ConnectionOptions | undefined;
  readonly signal: AbortSignal;
}

/**
 * A socket that is connected to the target, TLS included.
 *
 * @throws CprgError `unavailable` naming what could not be reached; the signal's reason
 */
export async function openSocket(target: Target, options: SocketOptions): Promise<Socket> {
  const { proxy, tls, signal } = options;
  const near = proxy === undefined ? target : proxyTarget(proxy);
  let socket = await opened(connectTcp(near.port, near.host), "connect", { target: near, signal });
  try {
    if (proxy?.protocol === "https:") {
      const secure = connectTls({ socket, servername: near.host });
      socket = await opened(secure, "secureConnect", { target: near, signal });
    }
    if (proxy !== undefined) await tunnel(socket, target, { proxy, signal });
    if (tls !== undefined) {
      const secure = connectTls({ socket, ALPNProtocols: ["h2"], ...serverName(target), ...tls });
      socket = await opened(secure, "secureConnect", { target, signal });
    }
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return socket;
}

function proxyTarget({ protocol, hostname, port }: URL): Target {
  const standard = protocol === "https:" ? 443 : 80;
  return { host: bare(hostname), port: port === "" ? standard : Number(port) };
}

/** An address is no server name (RFC 6066 section 3). */
function serverName({ host }: Target): { servername?: string } {
  return /^[\d.]+$|:/.test(host) ? {} : { servername: host };
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, "$1");
}

function opened(
  socket: Socket,
  event: "connect" | "secureConnect",
  { target, signal }: { target: Target; signal: AbortSignal },
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => settle(signal.reason);
    const onError = (cause: Error): void => settle(unreachable(target, cause));
    const onClose = (): void => settle(unreachable(target, new Error("closed")));
    const settle = (error?: unknown): void => {
      signal.removeEventListener("abort", onAbort);
      socket.off(event, onOpen).off("error", onError).off("close", onClose);
      // Later errors are the session's; none may be without a listener.
      socket.on("error", () => undefined);
      if (error === undefined) resolve(socket);
      else {
        socket.destroy();
        reject(error);
      }
    };
    const onOpen = (): void => settle();
    socket.once(event, onOpen).once("error", onError).once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

async function tunnel(
  socket: Socket,
  { host, port }: Target,
  { proxy, signal }: { proxy: URL; signal: AbortSignal },
): Promise<void> {
  const authority = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  const user = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const authorization =
    proxy.username === ""
      ? ""
      : `Proxy-Authorization: Basic ${Buffer.from(user).toString("base64")}\r\n`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${authorization}\r\n`);
  const head = await answerHead(socket, signal);
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1];
  if (status?.startsWith("2")) return;
  const said = status === undefined ? "did not answer in HTTP" : `answered ${status}`;
  throw new CprgError("unavailable", `the proxy ${proxy.host} ${said} to CONNECT ${authority}`);
}

/** The proxy's answer up to its empty line; what follows stays in the socket. */
function answerHead(socket: Socket, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    let isOver = false;
    const settle = (action: () => void): void => {
      isOver = true;
      socket.off("readable", onReadable).off("close", onClose).off("error", onClose);
      signal.removeEventListener("abort", onAbort);
      action();
    };
    const fail = (message: string): void =>
      settle(() => reject(new CprgError("unavailable", `the proxy ${message}`)));
    const onAbort = (): void => settle(() => reject(signal.reason));
    const onClose = (): void => fail("closed the connection");
    const take = (piece: Buffer): void => {
      head = Buffer.concat([head, piece]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0 && head.length > ANSWER_BYTES_MAX) fail("answered without end");
      if (end < 0) return;
      if (head.length > end + 4) socket.unshift(head.subarray(end + 4));
      settle(() => resolve(head.subarray(0, end).toString("latin1")));
    };
    const onReadable = (): void => {
      while (!isOver) {
        const piece: Buffer | null = socket.read();
        if (piece === null) return;
        take(piece);
      }
    };
    socket.on("readable", onReadable).once("close", onClose).once("error", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

function unreachable({ host, port }: Target, cause: Error): CprgError {
  return new CprgError("unavailable", `Cannot reach ${host}:${port}: ${cause.message}`, {
    op: "connect to the control plane",
    cause,
  });
}
