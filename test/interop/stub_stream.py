# One stream of control_plane_stub.py: its calls, the credit that it counts, and what comes from the worker.

import asyncio
import hashlib
import json

import grpc
from google.protobuf import json_format
from grpc import aio
from grpc._cython import cygrpc  # aio has no name of its own for a write that failed

from wire import CANCEL, CREDIT, GRANT_AT, KIB, START_CREDIT, cost_of, decode, pb

SHOWN = 4 * KIB  # of the bytes of an item, in its event
KEPT = 64 * KIB  # of the output of a call, to look for text in

HEARTBEAT_ACK = "heartbeat.ack"
DEFAULT_METHODS = ("heartbeat", CREDIT, HEARTBEAT_ACK, "worker.secret")

UNARY = {
    name: (getattr(pb, f"{stem}Request"), getattr(pb, f"{stem}Response"))
    for name, stem in (
        ("worker.Claim", "Claim"), ("worker.Release", "Release"), ("worker.Drain", "Drain"),
        ("worker.Reattach", "Reattach"), ("exec.Input", "ExecInput"),
        ("exec.Resize", "ExecResize"), ("exec.Signal", "ExecSignal"),
        ("fs.ReadFile", "FsReadFile"), ("fs.WriteFile", "FsWriteFile"), ("fs.Stat", "FsStat"),
        ("fs.ListDir", "FsListDir"), ("fs.MakeDir", "FsMakeDir"), ("fs.Remove", "FsRemove"),
        ("fs.Rename", "FsRename"),
    )
}  # fmt: skip
STREAMS = {
    "exec.Start": (pb.ExecStartRequest, pb.ExecItem),
    "exec.Attach": (pb.ExecAttachRequest, pb.ExecItem),
    "fs.Download": (pb.FsDownloadRequest, pb.FsDownloadItem),
    "job.Run": (pb.JobRunRequest, pb.JobItem),
}
UPLOAD = "fs.Upload"


class StepFailed(Exception):
    """A step could not be done."""


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def shown(message):
    """A message as JSON, its long bytes cut."""
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > SHOWN:
            fields[name] = value[:SHOWN]
    return fields


class Call:
    """A call of this side, as far as the worker has answered it."""

    def __init__(self, name, call_id, method, response):
        self.name = name
        self.id = call_id
        self.method = method
        self.response = response
        self.streams = method in STREAMS
        self.items = 0
        self.bytes = 0  # costs of all items
        self.ungranted = 0
        self.upload_credit = START_CREDIT
        self.output = b""  # stdout, or the chunks: the beginning
        self.digest = hashlib.sha256()
        self.length = 0
        self.last = None
        self.end = None

    def took(self, item):
        kind = item.WhichOneof("item") if isinstance(item, pb.ExecItem | pb.FsDownloadItem) else ""
        if kind in ("stdout", "chunk"):
            data = getattr(item, kind)
            self.digest.update(data)
            self.length += len(data)
            self.output += data[: max(0, KEPT - len(self.output))]
        self.last = shown(item)


class Stream:
    """The stream of one worker."""

    def __init__(self, config, context):
        self.config = config
        self.context = context
        self.metadata = {name: value for name, value in context.invocation_metadata()}
        self.calls = {}
        self.heartbeats = 0
        self.holding = []
        self.changed = asyncio.Condition()
        self.closing = asyncio.get_running_loop().create_future()
        self.ended = ""
        self._writing = asyncio.Lock()
        self._next_id = 0
        listed = {word.strip() for word in self.metadata.get("x-worker-methods", "").split(",")}
        self.both = listed & set(config["methods"])

    # -- what goes

    async def send(self, **fields):
        await self.send_raw(pb.Envelope(**fields).SerializeToString())

    async def send_raw(self, data):
        if self.ended:
            raise StepFailed(f"the stream has ended: {self.ended}")
        async with self._writing:
            try:
                await self.context.write(data)
            except cygrpc.ExecuteBatchError:
                await self.over("reset")

    async def notice(self, method, message):
        payload = message.SerializeToString()
        await self.send(method=method, payload=payload, kind=pb.Envelope.REQUEST)

    def new_id(self):
        self._next_id += 1
        return f"c{self._next_id}"

    async def open(self, name, call_id, method, payload, response):
        call = Call(name, call_id or self.new_id(), method, response)
        self.calls[call.id] = call
        await self.send(id=call.id, method=method, payload=payload, kind=pb.Envelope.REQUEST)
        return call

    def named(self, name):
        found = [call for call in self.calls.values() if call.name == name]
        if not found:
            raise StepFailed(f"no call {name}")
        return found[-1]

    # -- what comes

    async def serve(self):
        """Reads until the worker has ended its half, or a step closes the stream."""
        reading = asyncio.create_task(self._read())
        await asyncio.wait({reading, self.closing}, return_when=asyncio.FIRST_COMPLETED)
        if not self.closing.done():
            return grpc.StatusCode.OK, ""
        reading.cancel()
        return self.closing.result()

    async def _read(self):
        while (data := await self.context.read()) is not aio.EOF:
            envelope = decode(pb.Envelope, data)
            if envelope is None:
                emit("no_envelope", length=len(data))
                continue
            try:
                await self._take(envelope)
            except aio.BaseError:  # it ended while its frame was answered
                break
            async with self.changed:
                self.changed.notify_all()
        await self.over("half-closed")

    async def over(self, how):
        self.ended = self.ended or how
        async with self.changed:
            self.changed.notify_all()

    async def _take(self, envelope):
        if envelope.kind == pb.Envelope.REQUEST:
            await self._take_request(envelope)
            return
        call = self.calls.get(envelope.id)
        if call is None or call.end is not None:
            emit("stray", id=envelope.id, kind=envelope.kind, error=envelope.error)
        elif envelope.kind == pb.Envelope.ERROR:
            self._end(call, error=envelope.error)
        elif call.streams and envelope.payload:
            await self._take_item(call, envelope.payload)
        elif call.streams:
            self._end(call)
        else:
            self._take_response(call, envelope.payload)

    def _end(self, call, **fields):
        if call.streams:
            fields.update(items=call.items, length=call.length, sha256=call.digest.hexdigest())
            fields.update(last=call.last)
        call.end = fields
        emit("end", call=call.name, method=call.method, **fields)

    def _take_response(self, call, payload):
        response = decode(call.response, payload)
        if response is None:
            self._end(call, malformed=True)
        else:
            self._end(call, response=shown(response))

    async def _take_item(self, call, payload):
        item = decode(call.response, payload)
        if item is None:
            emit("malformed_item", call=call.name)
            return
        call.items += 1
        call.bytes += cost_of(payload)
        call.took(item)
        emit("item", call=call.name, size=len(payload), item=call.last)
        call.ungranted += cost_of(payload)
        if self.config["grant"] and CREDIT in self.both and call.ungranted >= GRANT_AT:
            await self.grant(call, call.ungranted)

    async def grant(self, call, amount):
        call.ungranted = 0
        await self.notice(CREDIT, pb.CreditRequest(request_id=call.id, bytes=amount))

    async def _take_request(self, envelope):
        if envelope.method == "heartbeat":
            await self._take_heartbeat(envelope)
        elif envelope.method == CREDIT:
            self._take_credit(decode(pb.CreditRequest, envelope.payload))
        elif envelope.method == CANCEL:
            emit("cancel", request=shown(pb.CancelRequest.FromString(envelope.payload)))
        else:
            emit("request", id=envelope.id, method=envelope.method)
            error = f"unimplemented: no method {envelope.method}"
            await self.send(id=envelope.id, kind=pb.Envelope.ERROR, error=error)

    def _take_credit(self, credit):
        call = self.calls.get(credit.request_id)
        emit("credit", call=call and call.name, bytes=credit.bytes, upload=credit.upload)
        if call is not None and credit.upload:
            call.upload_credit += credit.bytes

    async def _take_heartbeat(self, envelope):
        request = decode(pb.HeartbeatRequest, envelope.payload)
        self.heartbeats += 1
        self.holding = [claim.task_id for claim in request.claims]
        emit("heartbeat", request=shown(request))
        if HEARTBEAT_ACK not in self.both or not self.config["answer_heartbeats"]:
            return
        renew = self.config["renew"]
        renewed = request.claims if renew == "all" else [pb.Claim(**claim) for claim in renew]
        dropped = [pb.Claim(**claim) for claim in self.config["drop"]]
        answer = pb.HeartbeatResponse(renewed=renewed, dropped=dropped)
        await self.send(
            id=envelope.id, kind=pb.Envelope.RESPONSE, payload=answer.SerializeToString()
        )
