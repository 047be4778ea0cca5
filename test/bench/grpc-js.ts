// grpc-js-pair.mjs as a row drives it: one sample in milliseconds for each call.

import { join } from "node:path";

const PAIR = join(import.meta.dir, "grpc-js-pair.mjs");

/** A client and a server on Node, each a process. */
export interface GrpcJs extends Disposable {
  /** Round trips one after another, or chunks of 64 KiB one way; milliseconds of all of them. */
  sample(what: "rtt" | "flow", count: number): Promise<number>;
}

/** Starts both. */
export async function startGrpcJs(): Promise<GrpcJs> {
  const server = Bun.spawn(["node", PAIR, "server"], { stdout: "pipe", stderr: "inherit" });
  const port = await linesOf(server.stdout)();
  const words = ["node", PAIR, "client", port];
  const client = Bun.spawn(words, { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  const line = linesOf(client.stdout);
  return {
    async sample(what, count) {
      client.stdin.write(`${what} ${count}\n`);
      await client.stdin.flush();
      return Number(await line());
    },
    [Symbol.dispose]: () => {
      client.kill();
      server.kill();
    },
  };
}

function linesOf(output: ReadableStream<Uint8Array>): () => Promise<string> {
  const reader = output.getReader();
  const decoder = new TextDecoder();
  let text = "";
  return async () => {
    while (!text.includes("\n")) {
      const { value, done } = await reader.read();
      if (done) throw new Error("grpc-js ended");
      text += decoder.decode(value, { stream: true });
    }
    const end = text.indexOf("\n");
    const line = text.slice(0, end);
    text = text.slice(end + 1);
    return line;
  };
}
