"""A peer that lists nothing, on grpcio: it knows Envelopes, unary and streaming calls, and cancel.

  python3 plain_peer.py worker HOST:PORT TOKEN    serves echo, count and hang until the stream ends
  python3 plain_peer.py control                   prints its port; calls what comes; prints answers
"""

import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, message_factory

TOP = pathlib.Path(__file__).resolve().parents[2]
METHOD = "/outrigger.v1.WorkerBridge/Connect"


def envelope_class():
    with tempfile.NamedTemporaryFile() as out:
        path = str(TOP / "proto/outrigger/v1/bridge.proto")
        command = ["protoc", f"-I{TOP / 'proto'}", f"--descriptor_set_out={out.name}", path]
        subprocess.run(command, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    return message_factory.GetMessages(files.file)["outrigger.v1.Envelope"]


Envelope = envelope_class()
REQUEST, RESPONSE, ERROR = 1, 2, 3


def say(**line):
    print(json.dumps(line), flush=True)


def outgoing(frames):
    for frame in iter(frames.get, None):
        yield frame


def worker(address, token):
    """Answers until the stream ends, then says how it did."""
    frames = queue.Queue()
    channel = grpc.insecure_channel(address)
    connect = channel.stream_stream(METHOD, Envelope.SerializeToString, Envelope.FromString)
    metadata = [("authorization", f"Bearer {token}"), ("x-worker-id", "plain")]
    call = connect(outgoing(frames), metadata=metadata)
    frames.put(Envelope(id="beat", method="heartbeat", kind=REQUEST))
    hanging = set()
    try:
        for frame in call:
            if frame.kind != REQUEST:
                say(answered=frame.id)
            elif frame.method == "echo":
                frames.put(Envelope(id=frame.id, payload=frame.payload, kind=RESPONSE))
            elif frame.method == "count":
                for item in range(1, 101):
                    frames.put(Envelope(id=frame.id, payload=b"\x28" + bytes([item]), kind=RESPONSE))
                frames.put(Envelope(id=frame.id, kind=RESPONSE))
            elif frame.method == "hang":
                hanging.add(frame.id)
            elif frame.method == "/internal/cancel":
                request_id = frame.payload[2 : 2 + frame.payload[1]].decode()
                hanging.discard(request_id)
                frames.put(Envelope(id=request_id, kind=ERROR, error="cancelled on request"))
            else:
                frames.put(Envelope(id=frame.id, kind=ERROR, error=f"unknown {frame.method}"))
        say(ended="OK")
    except grpc.RpcError as error:
        say(ended=error.code().name, details=error.details(), hanging=len(hanging))
    frames.put(None)


def control():
    """Serves one stream: calls `fs.Stat` and `exec.Start`, cancels the second, then ends."""
    done = threading.Event()

    def connect(requests, context):
        metadata = dict(context.invocation_metadata())
        if metadata.get("authorization") != "Bearer good":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "[ID_TAKEN] not yours")
        say(registered=metadata["x-worker-id"], methods=metadata["x-worker-methods"])
        first = next(requests)
        say(first=first.method, kind=first.kind)
        yield Envelope(id="1", method="fs.Stat", kind=REQUEST)
        say(stat=next(requests).id)
        yield Envelope(id="2", method="exec.Start", kind=REQUEST)
        items = 0
        for frame in requests:
            if frame.kind == RESPONSE and frame.payload:
                items += 1
                if items == 3:
                    yield Envelope(id="c", method="/internal/cancel", payload=b"\n\x012", kind=REQUEST)
            else:
                say(end=frame.error, kind=frame.kind)
                break
        yield Envelope(id="3", method="no.Such", kind=REQUEST)
        say(unknown=next(requests).error)
        done.set()

    handler = grpc.method_handlers_generic_handler(
        "outrigger.v1.WorkerBridge",
        {
            "Connect": grpc.stream_stream_rpc_method_handler(
                connect, Envelope.FromString, Envelope.SerializeToString
            )
        },
    )
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((handler,))
    say(port=server.add_insecure_port("127.0.0.1:0"))
    server.start()
    done.wait(60)
    server.stop(5).wait()


if sys.argv[1] == "worker":
    worker(*sys.argv[2:])
else:
    control()
