// A plain worker on @grpc/grpc-js: claims, one kind of program, uploads in memory, cancel, heartbeats.
//   node grpc-js-worker.mjs PORT TOKEN

import {
  CONNECT,
  checkVectors,
  decode,
  ERROR,
  encode,
  grpc,
  REQUEST,
  RESPONSE,
  say,
} from "./grpc-js-peer.mjs";

const [port, token] = process.argv.slice(2);
const Client = grpc.makeGenericClientConstructor({ connect: CONNECT }, "WorkerBridge");
const client = new Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${token}`);
metadata.set("x-worker-id", "grpc-js-worker");

say("vectors", { count: checkVectors() });
const stream = client.connect(metadata);
let claim = null;
/** Uploads by id: what has come. */
const uploads = new Map();
/** Programs that run until they are cancelled. */
const hanging = new Set();

const send = (id, kind, rest) => stream.write({ id, kind, ...rest });
const respond = (id, name, value) => send(id, RESPONSE, { payload: encode(name, value) });
const fail = (id, error) => send(id, ERROR, { error });

function start(id, { command }) {
  const item = (seq, value) => respond(id, "ExecItem", { seq, ...value });
  item(1, { started: { execId: "e1", pid: 1 } });
  if (command === "hang") {
    hanging.add(id);
    return;
  }
  item(2, { stdout: Buffer.from(`${command}\n`) });
  item(3, { exit: { exitCode: 0, reason: "exit" } });
  send(id, RESPONSE, {});
}

function upload(id, payload) {
  if (payload.length === 0) {
    const bytes = uploads.get(id);
    uploads.delete(id);
    respond(id, "FsUploadResponse", { bytes, entries: 1 });
    return;
  }
  const { chunk } = decode("FsUploadItem", payload);
  uploads.set(id, (uploads.get(id) ?? 0) + (chunk?.length ?? 0));
}

const METHODS = {
  "worker.Claim": (id, payload) => {
    const { taskId, epoch, env } = decode("ClaimRequest", payload);
    claim = { taskId, epoch };
    say("claimed", { taskId, epoch, env });
    respond(id, "ClaimResponse", { root: "/r", home: "/h", os: "linux", arch: "x86_64" });
  },
  "worker.Release": (id) => {
    claim = null;
    respond(id, "ReleaseResponse", { killed: 0 });
  },
  "worker.Drain": (id) => {
    respond(id, "DrainResponse", {});
    stream.end();
  },
  "exec.Start": (id, payload) => start(id, decode("ExecStartRequest", payload)),
  "fs.Upload": upload,
  "/internal/cancel": (_, payload) => {
    const { requestId } = decode("CancelRequest", payload);
    if (hanging.delete(requestId)) fail(requestId, "canceled: as asked");
  },
};

const beat = () =>
  send("", REQUEST, {
    id: `h${Date.now()}`,
    method: "heartbeat",
    payload: encode("HeartbeatRequest", { claims: claim === null ? [] : [claim] }),
  });

stream.on("metadata", (headers) => {
  say("connected", { methods: headers.get("x-control-methods").join(",") });
  beat();
  setInterval(beat, 500).unref();
});
stream.on("data", ({ id, method, payload, kind }) => {
  if (kind !== REQUEST) return;
  if (uploads.has(id)) upload(id, payload);
  else if (Object.hasOwn(METHODS, method)) METHODS[method](id, payload);
  else fail(id, `unimplemented: no method ${method}`);
});
stream.on("error", ({ code, details }) => say("ended", { code, details }));
stream.on("status", ({ code }) => {
  say("status", { code });
  client.close();
});
