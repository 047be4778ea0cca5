// A WebSocket client that takes one message when it is asked to, and nothing ahead of that: unlike
// the runtime's own, which reads whatever comes.

import type { Socket } from "node:net";

/** First bytes of a frame: its length, and where its payload begins (RFC 6455 section 5.2). */
function frameBounds(bytes: Buffer): { start: number; end: number } | null {
  if (bytes.length < 2) return null;
  const short = (bytes[1] ?? 0) & 0x7f;
  const start = short === 127 ? 10 : short === 126 ? 4 : 2;
  if (bytes.length < start) return null;
  const length =
    short === 127
      ? Number(bytes.readBigUInt64BE(2))
      : short === 126
        ? bytes.readUInt16BE(2)
        : short;
  return { start, end: start + length };
}

const TEXT = 1;
const CLOSE = 8;
const FINAL = 0x80;

/**
 * Messages of a socket that has been upgraded, until the server closes it.
 *
 * @param rest what came behind the answer to the upgrade
 * @throws when a frame is no whole text message, or when the socket ends without a close frame
 */
export async function* readMessages(socket: Socket, rest: Buffer): AsyncGenerator<string> {
  let bytes = rest;
  const chunks = socket[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  for (;;) {
    const bounds = frameBounds(bytes);
    if (bounds === null || bytes.length < bounds.end) {
      const { value, done } = await chunks.next();
      if (done) throw new Error("the stream ended without a close frame");
      bytes = Buffer.concat([bytes, value]);
      continue;
    }
    const kind = (bytes[0] ?? 0) & 0x0f;
    if (((bytes[0] ?? 0) & FINAL) === 0) throw new Error("a message came in fragments");
    const payload = bytes.subarray(bounds.start, bounds.end);
    bytes = bytes.subarray(bounds.end);
    if (kind === CLOSE) return;
    if (kind === TEXT) yield payload.toString("utf8");
  }
}
