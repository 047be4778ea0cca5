// WebSocket clients of the tests: a usual one that collects lines, and a raw one that never reads.

import { connect, type Socket } from "node:net";

/** What a stream gave until it was closed. */
export interface StreamEnd {
  readonly lines: readonly string[];
  readonly code: number;
}

/** Connects and collects until the server closes. */
export async function collectStream(url: URL, headers: Record<string, string>): Promise<StreamEnd> {
  const socket = new WebSocket(url.href.replace(/^http/, "ws"), { headers } as never);
  const lines: string[] = [];
  socket.addEventListener("message", ({ data }) => lines.push(String(data)));
  return await new Promise((resolve) => {
    socket.addEventListener("close", ({ code }) => resolve({ lines, code }));
  });
}

/**
 * Upgrades by hand and then reads nothing more.
 *
 * @returns the socket, once the server has answered 101
 */
export async function connectWithoutReading(url: URL, key: string): Promise<Socket> {
  const socket = connect({ host: url.hostname, port: Number(url.port) });
  socket.write(
    [
      `GET ${url.pathname}${url.search} HTTP/1.1`,
      `Host: ${url.host}`,
      `Authorization: Bearer ${key}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      "",
      "",
    ].join("\r\n"),
  );
  const [first] = await new Promise<Buffer[]>((resolve, reject) => {
    socket.once("data", (chunk: Buffer) => resolve([chunk]));
    socket.once("error", reject);
  });
  socket.pause();
  if (!first?.toString("latin1").startsWith("HTTP/1.1 101"))
    throw new Error(`no upgrade: ${first}`);
  return socket;
}
