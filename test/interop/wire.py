# The wire: the messages of proto/, and the numbers, codes and reasons of PROTOCOL.md.
#
# Owns the generated code: protoc writes it into a temporary folder that is gone after the import,
# so none of it is ever kept. `pb` holds every message by its name. To generate it by hand instead:
#   protoc -I proto --python_out=DIR proto/outrigger/v1/*.proto    and    OUTRIGGER_STUBS=DIR

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from google.protobuf.message import DecodeError

PROTO = Path(__file__).resolve().parents[2] / "proto"
FILES = ("bridge", "internal", "worker", "exec", "fs", "job")

CONNECT = "/outrigger.v1.WorkerBridge/Connect"
CANCEL = "/internal/cancel"
CREDIT = "/internal/credit"

KIB = 1024
MAX_MESSAGE = 4 * KIB * KIB  # section 1
MAX_ITEM = 256 * KIB  # section 4
MAX_UNARY = 3_407_872
MAX_NAME = 128
MAX_ERROR = 4096
START_CREDIT = 256 * KIB  # section 6
ITEM_COST = 64
GRANT_AT = 64 * KIB
MAX_GRANT = 1024 * KIB * KIB

CODES = (
    "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
    "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
    "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
)  # fmt: skip

REASON = re.compile(r"\[([A-Z][A-Z0-9_]{0,63})\]")

# What a gRPC channel needs to keep to section 1: no larger messages, no window that grows by
# itself (its probing would send pings), no retries beneath the worker's own.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65535),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class Failure(Exception):
    """An answer that is no success: `code: [REASON] message`."""

    def __init__(self, code, message, reason=""):
        super().__init__(f"[{reason}] {message}" if reason else message)
        self.code = code

    def text(self):
        raw = f"{self.code}: {self}".encode("utf-8", "replace")[:MAX_ERROR]
        return raw.decode("utf-8", "ignore")


def reason_of(message):
    """The UPPER_SNAKE word in brackets that a message may begin with; empty if there is none."""
    found = REASON.match(message)
    return found[1] if found else ""


def split_error(text):
    """The code and the message of an ERROR; what is no code of section 10 counts as unknown."""
    code, separator, message = text.partition(":")
    return (code, message.removeprefix(" ")) if separator and code in CODES else ("unknown", text)


def decode(message_class, data):
    """The message, or None if the bytes are none."""
    try:
        return message_class.FromString(data)
    except (DecodeError, UnicodeDecodeError, ValueError):
        return None


def cost_of(payload):
    return len(payload) + ITEM_COST


def _generate(folder):
    protos = [f"outrigger/v1/{name}.proto" for name in FILES]
    subprocess.run(["protoc", "-I", str(PROTO), f"--python_out={folder}", *protos], check=True)


def _load(folder):
    sys.path.insert(0, folder)
    messages = SimpleNamespace()
    try:
        for name in FILES:
            module = importlib.import_module(f"outrigger.v1.{name}_pb2")
            for message in module.DESCRIPTOR.message_types_by_name:
                setattr(messages, message, getattr(module, message))
    finally:
        sys.path.remove(folder)
    return messages


def _messages():
    ready = os.environ.get("OUTRIGGER_STUBS")
    if ready:
        return _load(ready)
    with tempfile.TemporaryDirectory(prefix="outrigger-stubs-") as folder:
        _generate(folder)
        return _load(folder)


pb = _messages()
