// What the bridge is compared with: @grpc/grpc-js on Node, client and server, with the same messages.
//   node grpc-js-pair.mjs server           prints its port
//   node grpc-js-pair.mjs client PORT      for each line `rtt N` or `flow N` prints its milliseconds

import { createInterface } from "node:readline";
import { CONNECT, encode, grpc, REQUEST, RESPONSE } from "../interop/grpc-js-peer.mjs";

const CHUNK = Buffer.alloc(64 * 1024, "a");
const STAT = encode("FsStatResponse", { stat: { name: "12345", type: "other", size: 1 } });
const ITEM = encode("ExecItem", { stdout: CHUNK, seq: 1 });

function serve() {
  const server = new grpc.Server();
  server.addService(
    { connect: CONNECT },
    { connect: (call) => call.on("data", (frame) => answer(call, frame)) },
  );
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    console.log(port);
  });
}

/** One response, or as many items as the path says and an end, no faster than they go. */
async function answer(call, { id, method, payload }) {
  if (method === "fs.Stat") {
    call.write({ id, kind: RESPONSE, payload: STAT });
    return;
  }
  for (let left = Number(payload.toString()); left > 0; left -= 1) {
    const hasRoom = call.write({ id, kind: RESPONSE, payload: ITEM });
    if (!hasRoom) await new Promise((resolve) => call.once("drain", resolve));
  }
  call.write({ id, kind: RESPONSE });
}

function drive(port) {
  const Client = grpc.makeGenericClientConstructor({ connect: CONNECT }, "WorkerBridge");
  const stream = new Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure()).connect();
  let take = () => undefined;
  stream.on("data", (frame) => take(frame));
  const trip = () =>
    new Promise((resolve) => {
      take = resolve;
      stream.write({ id: "1", method: "fs.Stat", kind: REQUEST });
    });
  const flow = (chunks) =>
    new Promise((resolve) => {
      let bytes = 0;
      take = ({ payload }) => {
        bytes += payload.length;
        if (payload.length === 0) resolve(bytes);
      };
      stream.write({
        id: "1",
        method: "exec.Start",
        kind: REQUEST,
        payload: Buffer.from(`${chunks}`),
      });
    });
  const work = {
    rtt: async (count) => {
      for (let left = count; left > 0; left -= 1) await trip();
    },
    flow: async (chunks) => {
      const bytes = await flow(chunks);
      if (bytes < chunks * CHUNK.length) throw new Error(`${bytes} bytes came`);
    },
  };
  const ask = async (line) => {
    const [what, count] = line.split(" ");
    const begin = performance.now();
    await work[what](Number(count));
    console.log(performance.now() - begin);
  };
  createInterface({ input: process.stdin }).on("line", (line) => void ask(line));
}

const [mode, port] = process.argv.slice(2);
if (mode === "server") serve();
else drive(port);
