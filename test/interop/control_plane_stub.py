#!/usr/bin/python3
# A control plane that does what a script says, to drive any worker for outrigger.v1.
#
# Owns the server side of one stream at a time and nothing of a control plane's sense: it keeps no
# claims, and checks nothing but the frames it counts credit for. Shares only wire.py with the
# reference worker, so that a mistake of one is not made by both.
#
#   control_plane_stub.py [SCRIPT.json]     a JSON array of steps, or one step a line; stdin if absent
#
# Prints JSON lines: {"event": "listening", "port": N} first, then whatever comes from the worker, and
# {"event": "done", "step": N, ...} after each step; with "error" if it failed, which ends a script.
# Exits 0 if all steps were done. The steps (every one takes "timeout", in seconds, 10 by default, or STUB_PATIENCE):
#
#   {"do": "config", ...}    of the next streams: "methods" (list), "heartbeat_seconds", "secret",
#                            "answer_heartbeats", "grant" (give credit back), "late_headers",
#                            "bare_headers", "renew" (list of claims, or "all"), "drop" (list)
#   {"do": "refuse", "code", "message"}     the next stream is refused
#   {"do": "accept"}         waits for the next stream; "metadata" in its done event
#   {"do": "call", "method", "request", "as", "wait": "end" | "started" | "item" | "none", "id"}
#                            a unary or server-streaming call; "request" as protobuf JSON
#   {"do": "claim" | "release" | "drain" | "exec" | "download", ...}    calls with the request inline
#   {"do": "upload", "items": [...], "fill": BYTES, "chunk": BYTES, "as", "end": true, "wait",
#          "ignore_credit"}  the items as protobuf JSON, then so many bytes in chunks
#   {"do": "wait", "as", "until": "end" | "item" | "bytes" | "output", "count", "contains"}
#   {"do": "grant", "as", "bytes"}   credit by hand
#   {"do": "cancel", "as", "reason"}
#   {"do": "frame", "id", "method", "payload" (base64), "fill": BYTES, "kind", "error", "times"}
#   {"do": "raw", "base64" | "fill": BYTES}      a message that need not be an Envelope
#   {"do": "barrier"}        a call of an unknown method and its answer: all frames before are read
#   {"do": "heartbeat", "count": N, "holds": TASK}    waits for such heartbeats from now on
#   {"do": "close", "code", "message"}      ends the stream with a status
#   {"do": "gone"}           waits until the worker has ended the stream; "by" says how

import argparse
import asyncio
import base64
import contextlib
import json
import os
import sys

import grpc
from google.protobuf import json_format
from grpc import aio

from stub_stream import (
    DEFAULT_METHODS, SHOWN, STREAMS, UNARY, UPLOAD, Call, StepFailed, Stream, emit,
)  # fmt: skip
from wire import CANCEL, CHANNEL_OPTIONS, CONNECT, CREDIT, KIB, cost_of, pb

PATIENCE = float(os.environ.get("STUB_PATIENCE", "10"))

SHORT = {
    "claim": "worker.Claim",
    "release": "worker.Release",
    "drain": "worker.Drain",
    "exec": "exec.Start",
    "download": "fs.Download",
}
OF_THE_STEP = ("do", "as", "wait", "timeout", "id")


class Stub:
    def __init__(self):
        self.config = {
            "methods": list(DEFAULT_METHODS), "heartbeat_seconds": 1, "secret": "",
            "answer_heartbeats": True, "grant": True, "late_headers": False,
            "bare_headers": False, "renew": "all", "drop": [],
        }  # fmt: skip
        self.stream = None
        self._refusals = asyncio.Queue()
        self._arrivals = asyncio.Queue()

    # -- the service

    def handler(self):
        method = grpc.stream_stream_rpc_method_handler(self.connect)
        service, name = CONNECT[1:].split("/")
        return grpc.method_handlers_generic_handler(service, {name: method})

    async def connect(self, _requests, context):
        if not self._refusals.empty():
            code, message = self._refusals.get_nowait()
            await self._arrivals.put(("refused", dict(context.invocation_metadata())))
            await context.abort(code, message)
        stream = Stream(dict(self.config), context)
        try:
            if not stream.config["late_headers"]:
                await context.send_initial_metadata(self.headers(stream.config))
            await self._arrivals.put(("accepted", stream))
            code, message = await stream.serve()
        except asyncio.CancelledError:
            await stream.over("reset")
            raise
        await stream.over("closed")
        if code != grpc.StatusCode.OK:
            await context.abort(code, message)

    @staticmethod
    def headers(config):
        if config["bare_headers"]:
            return ()
        values = {
            "x-control-methods": ", ".join(config["methods"]),
            "x-control-version": "stub/1",
            "x-control-heartbeat-seconds": str(config["heartbeat_seconds"]),
            "x-worker-secret": config["secret"],
        }
        return tuple((name, value) for name, value in values.items() if value)

    # -- the steps; each gives the fields of its done event

    async def step(self, step):
        name = step["do"]
        work = getattr(self, f"do_{name}", None)
        if work is None and name in SHORT:
            work = self.do_short
        if work is None:
            raise StepFailed(f"no step {name}")
        if self.stream is None and name not in ("config", "refuse", "accept"):
            raise StepFailed("no stream yet")
        try:
            return await asyncio.wait_for(work(step), step.get("timeout", PATIENCE)) or {}
        except asyncio.TimeoutError:
            raise StepFailed(f"{name}: timed out") from None

    async def do_config(self, step):
        changes = {name: value for name, value in step.items() if name in self.config}
        self.config.update(changes)
        if self.stream is not None:
            self.stream.config.update(changes)

    async def do_refuse(self, step):
        await self._refusals.put((grpc.StatusCode[step["code"].upper()], step.get("message", "")))

    async def do_accept(self, _step):
        how, found = await self._arrivals.get()
        if how == "refused":
            return {"refused": True, "metadata": found}
        self.stream = found
        return {"metadata": found.metadata}

    async def do_short(self, step):
        request = {name: value for name, value in step.items() if name not in OF_THE_STEP}
        return await self.do_call({**step, "method": SHORT[step["do"]], "request": request})

    async def do_call(self, step):
        method = step["method"]
        request_class, response = UNARY.get(method) or STREAMS.get(method) or (None, None)
        if request_class is None:
            raise StepFailed(f"no method {method}")
        request = json_format.ParseDict(step.get("request", {}), request_class())
        payload = request.SerializeToString()
        name = step.get("as", method)
        call = await self.stream.open(name, step.get("id"), method, payload, response)
        return await self._until(call, step.get("wait", "end"), step)

    async def do_wait(self, step):
        return await self._until(self.stream.named(step["as"]), step.get("until", "end"), step)

    async def _until(self, call, until, step):
        wanted = step.get("contains", "").encode()
        tests = {
            "none": lambda: True,
            "end": lambda: False,
            "started": lambda: call.items > 0,
            "item": lambda: call.items >= step.get("count", 1),
            "bytes": lambda: call.bytes >= step.get("count", 1),
            "output": lambda: wanted in call.output,
        }
        await self._change(lambda: call.end is not None or tests[until](), lambda: call.end)
        output = call.output.decode("utf-8", "replace")
        state = {"items": call.items, "bytes": call.bytes, "output": output[:SHOWN]}
        return {**state, "last": call.last, "end": call.end}

    async def _change(self, test, although_ended=lambda: False):
        stream = self.stream
        async with stream.changed:
            await stream.changed.wait_for(lambda: test() or stream.ended)
        if not test() and not although_ended():
            raise StepFailed(f"the stream has ended: {stream.ended}")

    async def do_upload(self, step):
        call = None
        for payload in self._payloads(step):
            if call is None:
                name = step.get("as", UPLOAD)
                response = pb.FsUploadResponse
                call = await self.stream.open(name, step.get("id"), UPLOAD, payload, response)
            else:
                await self._send_item(call, payload, step)
            call.upload_credit -= cost_of(payload) if payload else 0
            if call.end is not None:
                break
        return await self._until(call, step.get("wait", "end"), step)

    async def _send_item(self, call, payload, step):
        if payload and CREDIT in self.stream.both and not step.get("ignore_credit"):
            await self._change(lambda: call.upload_credit > 0 or call.end is not None)
        if call.end is None:
            await self.stream.send(id=call.id, payload=payload, kind=pb.Envelope.REQUEST)

    @staticmethod
    def _payloads(step):
        for item in step.get("items", []):
            yield json_format.ParseDict(item, pb.FsUploadItem()).SerializeToString()
        left = step.get("fill", 0)
        while left > 0:
            size = min(left, step.get("chunk", 64 * KIB))
            left -= size
            yield pb.FsUploadItem(chunk=b"u" * size).SerializeToString()
        if step.get("end", True):
            yield b""

    async def do_grant(self, step):
        await self.stream.grant(self.stream.named(step["as"]), step["bytes"])

    async def do_cancel(self, step):
        call = self.stream.named(step["as"])
        request = pb.CancelRequest(request_id=call.id, reason=step.get("reason", ""))
        await self.stream.notice(CANCEL, request)
        return await self._until(call, step.get("wait", "end"), step)

    async def do_frame(self, step):
        payload = base64.b64decode(step.get("payload", "")) + b"x" * step.get("fill", 0)
        name = step.get("as")
        if name and step.get("id"):
            response = UNARY.get(step.get("method"), (None, pb.CancelRequest))[1]
            self.stream.calls[step["id"]] = Call(name, step["id"], step.get("method", ""), response)
        frame = pb.Envelope(
            id=step.get("id", ""), method=step.get("method", ""), payload=payload,
            kind=step.get("kind", pb.Envelope.REQUEST), error=step.get("error", ""),
        )  # fmt: skip
        for _ in range(step.get("times", 1)):
            await self.stream.send_raw(frame.SerializeToString())
        return await self._until(self.stream.named(name), "end", step) if name else {}

    async def do_raw(self, step):
        data = base64.b64decode(step.get("base64", "")) + b"\xff" * step.get("fill", 0)
        # The worker may end a stream that broke its bounds before it has read all of this.
        with contextlib.suppress(aio.BaseError):
            await self.stream.send_raw(data)

    async def do_barrier(self, step):
        call = await self.stream.open("barrier", None, "stub.Barrier", b"", pb.CancelRequest)
        return await self._until(call, "end", step)

    async def do_heartbeat(self, step):
        stream = self.stream
        wanted = stream.heartbeats + step.get("count", 1)
        task = step.get("holds")
        await self._change(
            lambda: stream.heartbeats >= wanted and (task is None or task in stream.holding)
        )
        return {"holding": stream.holding}

    async def do_close(self, step):
        code = grpc.StatusCode[step.get("code", "ok").upper()]
        self.stream.closing.set_result((code, step.get("message", "")))
        await self._change(lambda: self.stream.ended != "")

    async def do_gone(self, _step):
        await self._change(lambda: self.stream.ended != "")
        return {"by": self.stream.ended}


# -- the script


async def lines_of_stdin():
    reader = asyncio.StreamReader(limit=16 * KIB * KIB)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        if line.strip():
            yield json.loads(line)


async def steps_of(path):
    if not path:
        async for step in lines_of_stdin():
            yield step
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    steps = json.loads(text) if text.lstrip().startswith("[") else None
    for step in steps or (json.loads(line) for line in text.splitlines() if line.strip()):
        yield step


async def run(stub, script, keep_going):
    number, failed = 0, False
    async for step in steps_of(script):
        number += 1
        try:
            emit("done", step=number, do=step.get("do"), **await stub.step(step))
        except (StepFailed, KeyError, json_format.ParseError, aio.UsageError) as error:
            failed = True
            text = str(error) or type(error).__name__
            emit("done", step=number, do=step.get("do"), error=text)
            if not keep_going:
                break
    return 1 if failed else 0


def credentials(options):
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    ca = read(options.client_ca) if options.client_ca else None
    pair = (read(options.key), read(options.cert))
    return grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)


async def main(options):
    server = aio.server(options=CHANNEL_OPTIONS)
    stub = Stub()
    server.add_generic_rpc_handlers((stub.handler(),))
    if options.cert:
        port = server.add_secure_port(options.listen, credentials(options))
    else:
        port = server.add_insecure_port(options.listen)
    await server.start()
    emit("listening", port=port)
    code = await run(stub, options.script, options.keep_going)
    await server.stop(grace=None)
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scripted control plane for outrigger.v1.")
    parser.add_argument("script", nargs="?", help="JSON array, or one step a line; stdin if absent")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--cert", help="serves with TLS; PEM")
    parser.add_argument("--key")
    parser.add_argument("--client-ca", help="asks for a client certificate of this authority")
    parser.add_argument("--keep-going", action="store_true", help="after a step that failed, too")
    sys.exit(asyncio.run(main(parser.parse_args())))
