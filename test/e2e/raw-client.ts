// Clients that speak HTTP by hand, and as badly as they like.

import { connect, type Socket } from "node:net";

/** A connection, and what came over it. */
export interface RawClient extends Disposable {
  readonly socket: Socket;
  /** Writes without a care for whether the other side still reads. */
  send(bytes: string | Uint8Array): void;
  /** Whether an answer came, or none will. */
  readonly isAnswered: boolean;
  /** The status of the next answer, or null when the connection ended without one. */
  readonly status: Promise<number | null>;
  /** Resolves when the connection is over. */
  readonly closed: Promise<void>;
}

/** Connects to a server. */
export function rawClient(url: string): RawClient {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  const status = Promise.withResolvers<number | null>();
  const closed = Promise.withResolvers<void>();
  let head = "";
  let isAnswered = false;
  void status.promise.then(() => {
    isAnswered = true;
  });
  socket.on("data", (chunk: Buffer) => {
    if (head.length < 64) head += chunk.toString("latin1");
    const found = /^HTTP\/1\.1 (\d{3})/.exec(head);
    if (found !== null) status.resolve(Number(found[1]));
  });
  // Being cut off is an answer too.
  socket.on("error", () => socket.destroy());
  socket.on("end", () => status.resolve(null));
  socket.on("close", () => {
    status.resolve(null);
    closed.resolve();
  });
  return {
    socket,
    get isAnswered() {
      return isAnswered;
    },
    send: (bytes) => {
      if (!socket.destroyed) socket.write(bytes);
    },
    status: status.promise,
    closed: closed.promise,
    [Symbol.dispose]: () => socket.destroy(),
  };
}

/** The head of a request. */
export function requestHead(
  line: string,
  headers: Readonly<Record<string, string | number>>,
): string {
  const fields = Object.entries({ Host: "127.0.0.1", ...headers });
  return `${line} HTTP/1.1\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
}

/** A text frame of a WebSocket client, masked with zeros (RFC 6455 section 5.2), at most 65 535 bytes. */
export function textFrame(size: number): Uint8Array {
  const head = [0x81, 0x80 | 126, size >> 8, size & 0xff, 0, 0, 0, 0];
  const frame = new Uint8Array(head.length + size).fill(0x78);
  frame.set(head);
  return frame;
}
