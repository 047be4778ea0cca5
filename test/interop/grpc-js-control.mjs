// A control plane on @grpc/grpc-js that drives one worker through its methods, and says what it saw.
//   node grpc-js-control.mjs

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

say("vectors", { count: checkVectors() });
const server = new grpc.Server();
server.addService({ connect: CONNECT }, { connect: (call) => void drive(call) });
server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  say("listening", { port });
});

const ANSWERS = {
  "worker.Claim": "ClaimResponse",
  "worker.Release": "ReleaseResponse",
  "worker.Drain": "DrainResponse",
  "exec.Start": "ExecItem",
  "fs.ReadFile": "FsReadFileResponse",
  "fs.Upload": "FsUploadResponse",
};
const STREAMS = ["exec.Start"];
const claim = { taskId: "t1", epoch: 1 };

async function drive(call) {
  const calls = new Map();
  let made = 0;
  let beats = 0;
  const metadata = call.metadata.getMap();
  const headers = new grpc.Metadata();
  headers.set("x-control-methods", "");
  call.sendMetadata(headers);

  /** Opens a call; resolves with its items and its end. */
  const open = (method, payload, onItem = () => undefined) => {
    made += 1;
    const id = `c${made}`;
    const ended = new Promise((resolve) => calls.set(id, { method, items: [], resolve, onItem }));
    call.write({ id, method, kind: REQUEST, payload });
    return { id, ended };
  };
  const ask = async (method, name, value) => await open(method, encode(name, value)).ended;

  call.on("data", ({ id, method, payload, kind, error }) => {
    if (kind === REQUEST) {
      if (method === "heartbeat") beats += 1;
      return;
    }
    const open = calls.get(id);
    if (open === undefined) return;
    const isItem = STREAMS.includes(open.method) && kind === RESPONSE && payload.length > 0;
    if (isItem) {
      const item = decode(ANSWERS[open.method], payload);
      open.items.push(item);
      open.onItem(item);
      return;
    }
    calls.delete(id);
    if (kind === ERROR) open.resolve({ items: open.items, error });
    else if (STREAMS.includes(open.method)) open.resolve({ items: open.items });
    else open.resolve({ response: decode(ANSWERS[open.method], payload) });
  });
  call.on("end", () => {
    say("half-closed");
    call.end();
    server.tryShutdown(() => undefined);
  });

  const seen = { id: metadata["x-worker-id"], lists: metadata["x-worker-methods"] };
  const textOf = (items) => items.map(({ stdout }) => stdout?.toString() ?? "").join("");
  seen.early = await ask("exec.Start", "ExecStartRequest", { command: "true" });
  seen.claim = await ask("worker.Claim", "ClaimRequest", { ...claim, env: { A: "of claim" } });
  const ran = await ask("exec.Start", "ExecStartRequest", { claim, command: "echo $A; exit 3" });
  seen.ran = { output: textOf(ran.items), exit: ran.items.at(-1).exit };
  const big = await ask("exec.Start", "ExecStartRequest", {
    claim,
    command: "head -c 3000000 /dev/zero",
  });
  seen.bigBytes = big.items.reduce((sum, { stdout }) => sum + (stdout?.length ?? 0), 0);

  const upload = open(
    "fs.Upload",
    encode("FsUploadItem", {
      claim,
      head: { path: "up", transfer: { type: "file", size: 300_000 } },
    }),
  );
  for (let sent = 0; sent < 300_000; sent += 100_000) {
    const chunk = Buffer.alloc(100_000, sent / 100_000 + 65);
    call.write({ id: upload.id, kind: REQUEST, payload: encode("FsUploadItem", { chunk }) });
  }
  call.write({ id: upload.id, kind: REQUEST });
  seen.uploaded = await upload.ended;
  const { response } = await ask("fs.ReadFile", "FsReadFileRequest", {
    claim,
    path: "up",
    offset: 99_999,
    length: 2,
  });
  seen.read = response.content.toString();

  await new Promise((resolve) => {
    const running = open(
      "exec.Start",
      encode("ExecStartRequest", { claim, command: "sleep 1000" }),
      (item) => {
        if (item.started === undefined) return;
        const payload = encode("CancelRequest", { requestId: running.id, reason: "enough" });
        call.write({ id: "n1", method: "/internal/cancel", kind: REQUEST, payload });
      },
    );
    void running.ended.then(({ error }) => {
      seen.cancelled = error;
      resolve();
    });
  });
  seen.released = await ask("worker.Release", "ReleaseRequest", { claim });
  seen.unknown = await ask("no.Such", "ReleaseRequest", { claim });
  while (beats < 1) await new Promise((resolve) => setTimeout(resolve, 10));
  say("seen", seen);
  await ask("worker.Drain", "DrainRequest", {});
}
