/** The built-in methods: names, kinds and messages (proto/PROTOCOL.md section 9). */

import type { Messages } from "../gen/messages.ts";
import { payloadCodec } from "./codec.ts";
import type {
  ClientStreamMethod,
  Method,
  MethodKind,
  NoticeMethod,
  ServerStreamMethod,
  UnaryMethod,
} from "./contract.ts";

type Name = keyof Messages;
type Pair<Request extends Name, Response extends Name> = readonly [Request, Response];

export const CANCEL = notice("/internal/cancel", "CancelRequest");
export const CREDIT = notice("/internal/credit", "CreditRequest");

/** Where both sides list {@link HEARTBEAT_ACK}. */
export const HEARTBEAT = unary("heartbeat", ["HeartbeatRequest", "HeartbeatResponse"]);
/** Where one does not. */
export const HEARTBEAT_NOTICE = notice("heartbeat", "HeartbeatRequest");

export const WORKER_CLAIM = unary("worker.Claim", ["ClaimRequest", "ClaimResponse"]);
export const WORKER_RELEASE = unary("worker.Release", ["ReleaseRequest", "ReleaseResponse"]);
export const WORKER_DRAIN = unary("worker.Drain", ["DrainRequest", "DrainResponse"]);
export const WORKER_REATTACH = unary("worker.Reattach", ["ReattachRequest", "ReattachResponse"]);

export const EXEC_START = serverStream("exec.Start", ["ExecStartRequest", "ExecItem"]);
export const EXEC_ATTACH = serverStream("exec.Attach", ["ExecAttachRequest", "ExecItem"]);
export const EXEC_INPUT = unary("exec.Input", ["ExecInputRequest", "ExecInputResponse"]);
export const EXEC_RESIZE = unary("exec.Resize", ["ExecResizeRequest", "ExecResizeResponse"]);
export const EXEC_SIGNAL = unary("exec.Signal", ["ExecSignalRequest", "ExecSignalResponse"]);

export const FS_READ_FILE = unary("fs.ReadFile", ["FsReadFileRequest", "FsReadFileResponse"]);
export const FS_WRITE_FILE = unary("fs.WriteFile", ["FsWriteFileRequest", "FsWriteFileResponse"]);
export const FS_STAT = unary("fs.Stat", ["FsStatRequest", "FsStatResponse"]);
export const FS_LIST_DIR = unary("fs.ListDir", ["FsListDirRequest", "FsListDirResponse"]);
export const FS_MAKE_DIR = unary("fs.MakeDir", ["FsMakeDirRequest", "FsMakeDirResponse"]);
export const FS_REMOVE = unary("fs.Remove", ["FsRemoveRequest", "FsRemoveResponse"]);
export const FS_RENAME = unary("fs.Rename", ["FsRenameRequest", "FsRenameResponse"]);
export const FS_DOWNLOAD = serverStream("fs.Download", ["FsDownloadRequest", "FsDownloadItem"]);
export const FS_UPLOAD = clientStream("fs.Upload", ["FsUploadItem", "FsUploadResponse"]);

export const JOB_RUN = serverStream("job.Run", ["JobRunRequest", "JobItem"]);

/** Capabilities that name no method served by the one who lists them (section 3). */
export const HEARTBEAT_ACK = "heartbeat.ack";
export const WORKER_SECRET = "worker.secret";
export const CLAIM_LIMITS = "claim.limits";
export const HTTP2_PING = "http2.ping";

function unary<Q extends Name, R extends Name>(
  name: string,
  types: Pair<Q, R>,
): UnaryMethod<Messages[Q], Messages[R]> {
  return define(name, "unary", types);
}

function serverStream<Q extends Name, R extends Name>(
  name: string,
  types: Pair<Q, R>,
): ServerStreamMethod<Messages[Q], Messages[R]> {
  return define(name, "serverStream", types);
}

function clientStream<Q extends Name, R extends Name>(
  name: string,
  types: Pair<Q, R>,
): ClientStreamMethod<Messages[Q], Messages[R]> {
  return define(name, "clientStream", types);
}

function notice<Q extends Name>(name: string, type: Q): NoticeMethod<Messages[Q]> {
  return Object.freeze({ name, kind: "notice", request: payloadCodec(type) });
}

function define<K extends MethodKind, Q extends Name, R extends Name>(
  name: string,
  kind: K,
  [request, response]: Pair<Q, R>,
): Method<K, Messages[Q], Messages[R]> {
  return Object.freeze({
    name,
    kind,
    request: payloadCodec(request),
    response: payloadCodec(response),
  });
}
