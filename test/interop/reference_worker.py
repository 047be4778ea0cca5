#!/usr/bin/python3
# A worker for outrigger.v1, written from proto/PROTOCOL.md alone, on grpcio and protoc only.
#
# Owns the process: its options, its identity, dialling and dialling again, heartbeats, and the exit
# code. Kept as the reference for whoever writes a worker in another language: read peer.py for the
# calls over the stream, claims.py for who may call, programs.py, files.py and transfers.py for what
# is called.
#
# Debian: apt-get install python3-grpcio python3-protobuf protobuf-compiler
#   OUTRIGGER_TOKEN=... /usr/bin/python3 reference_worker.py --state DIR http://127.0.0.1:7600

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import re
import secrets
import signal
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import grpc
from grpc import aio

import files
import programs
import transfers
from claims import ClaimTable
from peer import (
    CLIENT_STREAM, SERVER_STREAM, UNARY, Method, Peer, ProtocolError, StreamClosed,
)  # fmt: skip
from wire import CHANNEL_OPTIONS, CONNECT, CREDIT, Failure, pb, reason_of

VERSION = "reference-worker/1"
DEFAULT_PORT = 7600
DONE, FAILED, USAGE, REFUSED, NEVER_REACHED = 0, 1, 2, 3, 4

HEARTBEAT_ACK, SECRET, PING = "heartbeat.ack", "worker.secret", "http2.ping"
HEARTBEAT_SECONDS = 30
HEADERS_PATIENCE = 2.0  # for the response headers, before the control plane counts as plain
CLOSE_PATIENCE = 5.0  # for the status, after this side has ended its half
SILENT_PERIODS = 2.5  # without any frame, where heartbeats are answered
FIRST_DELAY, LAST_DELAY, LONG_LIFE = 1.0, 60.0, 60.0
PING_MS = 20_000

log = logging.getLogger("worker")


# -- identity


class Identity:
    """The id of this worker and the secret that proves it, in a folder of their own."""

    def __init__(self, folder):
        self._folder = folder
        if folder:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self.id = self._load("id") or self.keep("id", f"worker-{secrets.token_hex(8)}")
        self.secret = self._load("secret")

    def take_secret(self, secret):
        self.secret = self.keep("secret", secret)

    def _load(self, name):
        if not self._folder:
            return ""
        try:
            with open(os.path.join(self._folder, name), encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def keep(self, name, value):
        if self._folder:
            path = os.path.join(self._folder, name)
            fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(value)
            os.replace(f"{path}.new", path)
        return value


def header_text(text):
    """Text as `x-worker-name` wants it: ASCII, the rest escaped as in a JSON string."""
    return "".join(
        char if " " <= char <= "~" and char != "\\" else json.dumps(char)[1:-1] for char in text
    )


def capabilities_of(value):
    return frozenset(word.strip() for word in value.split(",") if word.strip())


# -- the end of a stream, and what it means

# Code and reason have to be in the tables of sections 2 and 10: what comes without one of these may
# be a proxy's, and passes.
STOPS = {
    "unauthenticated": (REFUSED, ("NO_TOKEN", "BAD_TOKEN", "TOKEN_EXPIRED", "TOKEN_REVOKED")),
    "invalid_argument": (USAGE, ("BAD_METADATA",)),
    "permission_denied": (REFUSED, ("ID_TAKEN", "ID_NOT_ALLOWED", "WORKER_REMOVED")),
    "aborted": (REFUSED, ("REPLACED",)),
}


@dataclass(frozen=True)
class Ending:
    code: str  # in snake case; `ok`
    message: str
    reached: bool  # the control plane sent headers or a message
    seconds: float

    def exit_code(self):
        """The exit code that it stops the worker with, or None: dial again."""
        code, reasons = STOPS.get(self.code, (None, ()))
        return code if reason_of(self.message) in reasons else None


def code_name(status):
    return "canceled" if status == grpc.StatusCode.CANCELLED else status.name.lower()


# -- one stream


class Session:
    """One stream, from the dial to its end."""

    def __init__(self, worker):
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._reached = False
        self._control = frozenset()
        self._period = HEARTBEAT_SECONDS
        self._stream = None
        self._heard_at = self._loop.time()
        self.peer = Peer(self._write, worker.methods)

    async def run(self):
        began = self._loop.time()
        async with self._worker.channel() as channel:
            connect = channel.stream_stream(CONNECT)  # bytes: messages are decoded by the peer
            self._stream = connect(metadata=self._worker.metadata())
            code, message = await self._live()
        seconds = self._loop.time() - began
        return Ending(code, message, self._reached, seconds)

    async def _live(self):
        self._headers = asyncio.create_task(self._take_headers())
        reading = asyncio.create_task(self._read())
        beating = asyncio.create_task(self._beat())
        closing = asyncio.create_task(self._close_when_done())
        watching = asyncio.create_task(self._watch_silence())
        try:
            return await reading
        finally:
            others = (self._headers, beating, closing, watching)
            for task in others:
                task.cancel()
            # Calls end with their stream; without worker.Reattach, so do the claims.
            await self.peer.close()
            await self._worker.claims.end_all("the stream has ended")
            await asyncio.gather(*others, return_exceptions=True)

    async def _read(self):
        """Takes messages until the stream ends; gives the status."""
        try:
            while (data := await self._stream.read()) is not aio.EOF:
                self._reached = True
                self._heard_at = self._loop.time()
                await self._headers  # they come before any message
                await self.peer.receive(data)
        except ProtocolError as error:
            # The status is the control plane's to send: a worker can only reset.
            log.warning("reset: %s", error)
            self._stream.cancel()
            return "internal", str(error)
        except (aio.AioRpcError, StreamClosed):
            pass
        except asyncio.CancelledError:
            if not self._stream.cancelled():
                raise
        return code_name(await self._stream.code()), await self._stream.details() or ""

    async def _write(self, data):
        try:
            await self._stream.write(data)
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise StreamClosed() from error
        except asyncio.CancelledError:
            if self._stream.done():
                raise StreamClosed() from None
            raise

    # -- headers and heartbeats

    async def _take_headers(self):
        try:
            headers = {name: value for name, value in await self._stream.initial_metadata()}
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return
        # Without any, this may be the beginning of a refusal as well as that of a plain peer.
        self._reached = self._reached or bool(headers)
        self._control = capabilities_of(headers.get("x-control-methods", ""))
        seconds = headers.get("x-control-heartbeat-seconds", "")
        if seconds.isdecimal() and 1 <= int(seconds) <= 3600:
            self._period = int(seconds)
        self.peer.credit = self._both(CREDIT)
        self._worker.claims.counts_ttl = self._both(HEARTBEAT_ACK)
        self._worker.may_ping = PING in self._control
        if self._both(SECRET) and re.fullmatch(r"[\w-]{1,128}", headers.get("x-worker-secret", "")):
            self._worker.identity.take_secret(headers["x-worker-secret"])
        log.info("headers: %s", dict(headers))

    def _both(self, word):
        return word in self._control and word in self._worker.capabilities

    async def _beat(self):
        # A plain control plane may keep its headers back until it has something to say.
        await asyncio.wait({self._headers}, timeout=HEADERS_PATIENCE)
        with contextlib.suppress(StreamClosed):
            while True:
                next_at = self._loop.time() + self._period
                await self._heartbeat()
                await asyncio.sleep(max(0, next_at - self._loop.time()))

    async def _heartbeat(self):
        request = self._worker.heartbeat(len(self.peer.calls))
        if not self._both(HEARTBEAT_ACK):
            await self.peer.notice("heartbeat", request)
            return
        sent_at = self._loop.time()
        try:
            response = await self.peer.call(
                "heartbeat", request, pb.HeartbeatResponse, self._period
            )
            self._worker.claims.heard(response, sent_at)
        except Failure as failure:
            log.warning("heartbeat: %s", failure.text())

    async def _watch_silence(self):
        """Resets a stream on which nothing comes, not even answers to heartbeats."""
        await asyncio.wait({self._headers})
        self._heard_at = self._loop.time()
        while self._both(HEARTBEAT_ACK):
            left = self._heard_at + SILENT_PERIODS * self._period - self._loop.time()
            if left <= 0:
                log.warning("reset: the control plane is silent")
                self._stream.cancel()
                return
            await asyncio.sleep(left)

    # -- closing it from this side

    async def _close_when_done(self):
        await self._worker.finished.wait()
        await self.peer.settled()
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError, asyncio.TimeoutError):
            await asyncio.wait_for(self._stream.done_writing(), CLOSE_PATIENCE)
        await asyncio.sleep(CLOSE_PATIENCE)
        self._stream.cancel()


# -- the worker


class Worker:
    def __init__(self, options):
        self.options = options
        self.identity = Identity(options.state)
        if options.id:
            self.identity.id = options.id
        self.capabilities = frozenset()
        self.claims = ClaimTable(options.slots, self._claim_ended)
        self.methods = self._methods()
        self.capabilities = self._capabilities()
        self.finished = asyncio.Event()  # nothing is left to do: close the stream and exit
        self.may_ping = False  # what the control plane said last; a channel pings or does not
        self._started_at = time.monotonic()
        self._terminated = False
        self._killed = asyncio.Event()

    # -- what it serves

    def _methods(self):
        table = {
            "worker.Claim": Method(UNARY, pb.ClaimRequest, self.claims.claim),
            "worker.Release": Method(UNARY, pb.ReleaseRequest, self.claims.release),
            "worker.Drain": Method(UNARY, pb.DrainRequest, self._drain),
            "exec.Start": Method(
                SERVER_STREAM, pb.ExecStartRequest, self._claimed(programs.start, joins=False)
            ),
            "exec.Input": Method(UNARY, pb.ExecInputRequest, self._claimed(programs.feed)),
            "exec.Signal": Method(UNARY, pb.ExecSignalRequest, self._claimed(programs.send_signal)),
            "fs.Download": Method(
                SERVER_STREAM, pb.FsDownloadRequest, self._claimed(transfers.download)
            ),
            "fs.Upload": Method(
                CLIENT_STREAM, pb.FsUploadItem, lambda call: transfers.upload(call, self.claims)
            ),
        }
        for name, (request, serve) in files.methods(self.options.max_read_bytes).items():
            table[name] = Method(UNARY, request, self._claimed(serve))
        return table

    def _claimed(self, serve, joins=True):
        """A handler that gets the claim of its call, and ends with it (an exec does so itself)."""

        async def handler(call, request):
            claim = self.claims.of(request.claim if request.HasField("claim") else None)
            if not joins:
                return await serve(call, claim, request)
            claim.calls.add(call)
            try:
                return await serve(call, claim, request)
            finally:
                claim.calls.discard(call)

        return handler

    def _capabilities(self):
        if self.options.plain:
            return frozenset()
        return frozenset([*self.methods, CREDIT, HEARTBEAT_ACK, SECRET])

    # -- dialling

    def channel(self):
        options = list(CHANNEL_OPTIONS)
        if self.may_ping:
            options += [
                ("grpc.keepalive_time_ms", PING_MS),
                ("grpc.keepalive_timeout_ms", PING_MS),
                ("grpc.http2.max_pings_without_data", 0),
            ]
        url = urlsplit(self.options.url)
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        target = f"{host}:{url.port or DEFAULT_PORT}"
        if url.scheme == "http":
            return aio.insecure_channel(target, options=options)
        return aio.secure_channel(target, self._tls(), options=options)

    def _tls(self):
        def read(path):
            if not path:
                return None
            with open(path, "rb") as file:
                return file.read()

        options = self.options
        return grpc.ssl_channel_credentials(read(options.ca), read(options.key), read(options.cert))

    def metadata(self):
        options = self.options
        values = {
            "authorization": f"Bearer {options.token}",
            "x-worker-id": self.identity.id,
            "x-worker-name": header_text(options.name),
            "x-worker-labels": json.dumps(dict(options.label)) if options.label else "",
            "x-worker-methods": ",".join(sorted(self.capabilities)),
            "x-worker-version": VERSION,
            "x-worker-slots": str(options.slots),
            "x-worker-secret": self.identity.secret if SECRET in self.capabilities else "",
        }
        return tuple((name, value) for name, value in values.items() if value)

    async def run(self):
        delay = FIRST_DELAY
        attempts, ever_reached = 0, False
        while not self.finished.is_set():
            ending = await Session(self).run()
            log.info("stream ended: %s: %s", ending.code, ending.message)
            if self._killed.is_set():
                return FAILED
            if self.finished.is_set():
                break
            code = ending.exit_code()
            if code is not None:
                print(f"{ending.code}: {ending.message}", file=sys.stderr)
                return code
            ever_reached = ever_reached or ending.reached
            attempts = 0 if ending.reached else attempts + 1
            if self.options.attempts and attempts >= self.options.attempts:
                return FAILED if ever_reached else NEVER_REACHED
            if ending.seconds >= LONG_LIFE:
                delay = FIRST_DELAY
            await self._pause(delay * random.uniform(0.5, 1.0) * self.options.delay_scale)
            delay = min(2 * delay, LAST_DELAY)
        return DONE

    async def _pause(self, seconds):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.finished.wait(), seconds)

    # -- what goes on meanwhile

    def heartbeat(self, active):
        claims = self.claims.messages()
        return pb.HeartbeatRequest(
            active_requests=active,
            task_id=claims[0].task_id if claims else "",
            claims=claims,
            uptime_seconds=int(time.monotonic() - self._started_at),
            load=os.getloadavg()[0],
        )

    async def _drain(self, call, request):
        response = await self.claims.drain(call, request)
        self._finish_if_idle()
        return response

    def _claim_ended(self, claim):
        if self.options.once and claim.usable:
            self.claims.draining = True
        self._finish_if_idle()

    def _finish_if_idle(self):
        if self.claims.draining and self.claims.empty():
            self.finished.set()

    def terminate(self):
        """SIGTERM: drains; the second one kills."""
        if self._terminated:
            self._killed.set()
        self._terminated = True
        self.claims.draining = True
        self._finish_if_idle()

    async def killed(self):
        await self._killed.wait()
        await self.claims.end_all("killed", "shutdown")


async def main(options):
    worker = Worker(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.terminate)
    running = asyncio.create_task(worker.run())
    killed = asyncio.create_task(worker.killed())
    await asyncio.wait({running, killed}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        running.cancel()
        await asyncio.wait({running})
        return FAILED
    killed.cancel()
    return running.result()


def label(text):
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError("NAME=VALUE")
    return name, value


def parse(args):
    parser = argparse.ArgumentParser(description="A worker for outrigger.v1.")
    parser.add_argument("url", help="http://HOST:PORT without TLS, https://HOST:PORT with it")
    parser.add_argument("--token", default=os.environ.get("OUTRIGGER_TOKEN", ""))
    parser.add_argument("--state", help="folder of the id and the secret; neither is kept if absent")
    parser.add_argument("--id", help="the id, instead of one made once")
    parser.add_argument("--name", default="")
    parser.add_argument("--label", action="append", type=label, default=[], metavar="NAME=VALUE")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--max-read-bytes", type=int, default=3_145_728)
    parser.add_argument("--plain", action="store_true", help="list no capabilities")
    parser.add_argument("--once", action="store_true", help="exit after the first claim")
    parser.add_argument("--attempts", type=int, default=0, help="give up after so many dials")
    parser.add_argument("--delay-scale", type=float, default=1.0, help="of the pauses (for tests)")
    parser.add_argument("--ca")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args(args)
    url = urlsplit(options.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        parser.error("the URL is http://HOST:PORT or https://HOST:PORT")
    return options


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("LOG", "WARNING"), format="%(name)s: %(message)s")
    # gRPC looks for its proxy in lower case only.
    for variable in ("HTTPS_PROXY", "NO_PROXY"):
        if os.environ.get(variable) and not os.environ.get(variable.lower()):
            os.environ[variable.lower()] = os.environ[variable]
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
