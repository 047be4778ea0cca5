# How a worker dials: metadata, identity, refusals, the ends of a stream, TLS and proxies (sections 1, 2, 7).

import asyncio
import os
import re
import tempfile
from contextlib import asynccontextmanager
from json import loads

from selftest_base import KIB, Process, case, pair, stub, worker


@case
async def metadata_says_who_it_is():
    options = ["--id", "w:1", "--name", "Zoë \\", "--label", "zone=eu", "--slots", "3"]
    async with pair(*options) as (control, _, metadata):
        assert metadata["authorization"] == "Bearer secret-token"
        assert metadata["x-worker-id"] == "w:1"
        assert metadata["x-worker-name"] == "Zo\\u00eb \\\\", metadata["x-worker-name"]
        assert loads(metadata["x-worker-labels"]) == {"zone": "eu"}
        assert metadata["x-worker-slots"] == "3"
        assert "exec.Start" in metadata["x-worker-methods"].split(",")
        beat = await control.do("heartbeat")
        assert beat["holding"] == []


@case
async def secret_is_kept_and_sent_again():
    with tempfile.TemporaryDirectory() as state:
        async with stub(secret="s3cret") as control:
            async with worker(control.port, "--state", state) as process:
                first = (await control.do("accept"))["metadata"]
                assert re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,127}", first["x-worker-id"])
                assert "x-worker-secret" not in first
                await control.do("heartbeat")
                await control.do("config", secret="")
                await control.do("close", code="unavailable", message="[SHUTDOWN] later")
                second = (await control.do("accept"))["metadata"]
                assert second["x-worker-id"] == first["x-worker-id"]
                assert second["x-worker-secret"] == "s3cret"
                await control.do("drain")
                assert await process.code() == 0
            async with worker(control.port, "--state", state):
                third = (await control.do("accept"))["metadata"]
                assert third["x-worker-id"] == first["x-worker-id"]
                assert third["x-worker-secret"] == "s3cret"
        mode = os.stat(os.path.join(state, "secret")).st_mode & 0o777
        assert mode == 0o600, oct(mode)


@case
async def refusals_have_their_exit_codes():
    refusals = [
        ("unauthenticated", "[BAD_TOKEN] no", 3),
        ("invalid_argument", "[BAD_METADATA] x-worker-id", 2),
        ("permission_denied", "[ID_TAKEN] no", 3),
        ("permission_denied", "[ID_NOT_ALLOWED] no", 3),
    ]
    async with stub() as control:
        for code, message, exit_code in refusals:
            await control.do("refuse", code=code, message=message)
            async with worker(control.port) as process:
                assert (await control.do("accept"))["refused"]
                assert await process.code() == exit_code, code


@case
async def refusals_that_pass_are_tried_again():
    async with stub() as control:
        await control.do("refuse", code="resource_exhausted", message="[TOO_MANY_WORKERS] no")
        await control.do("refuse", code="unavailable", message="[SHUTDOWN] no")
        # As gRPC makes them of what a proxy answers.
        await control.do("refuse", code="unauthenticated", message="HTTP status 401")
        await control.do("refuse", code="permission_denied", message="[PROXY] HTTP status 403")
        await control.do("refuse", code="invalid_argument", message="no reason")
        async with worker(control.port):
            for refused in (True, True, True, True, True, False):
                assert (await control.do("accept")).get("refused", False) == refused


@case
async def ends_of_a_stream_mean_what_the_table_says():
    stops = [
        ("aborted", "[REPLACED] no", 3),
        ("unauthenticated", "[TOKEN_REVOKED] no", 3),
        ("permission_denied", "[WORKER_REMOVED] no", 3),
    ]
    for code, message, exit_code in stops:
        async with pair() as (control, process, _):
            await control.do("heartbeat")
            await control.do("close", code=code, message=message)
            assert await process.code() == exit_code, code
    async with pair() as (control, process, _):
        again = [
            ("ok", ""),
            ("deadline_exceeded", "[SILENT] no"),
            ("invalid_argument", "[PROTOCOL_ERROR] no"),
            ("resource_exhausted", "[OVERSIZE] no"),
            ("internal", "oops"),
        ]
        for code, message in again:
            await control.do("heartbeat")
            await control.do("close", code=code, message=message)
            await control.do("accept", timeout=20)


@case
async def never_reached_is_exit_code_4():
    async with stub() as control:
        port = control.port
    async with worker(port, "--attempts", "2") as process:
        assert await process.code() == 4


async def make_certificate(folder):
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = [os.path.join(folder, name) for name in ("key.pem", "cert.pem")]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    quiet = asyncio.subprocess.DEVNULL
    process = await Process.start([*new, "-keyout", files[0], "-out", files[1]], stderr=quiet)
    assert await process.code() == 0
    return files


@case
async def tls_with_client_certificates():
    with tempfile.TemporaryDirectory() as folder:
        key, cert = await make_certificate(folder)
        both = ["--cert", cert, "--key", key]
        async with stub(tls=[*both, "--client-ca", cert]) as control:
            options = {"url": "https://localhost"}
            async with worker(control.port, "--ca", cert, "--attempts", "1", **options) as process:
                assert await process.code() == 4
            async with worker(control.port, "--ca", cert, *both, **options):
                await control.do("accept")
                await control.do("heartbeat")


@asynccontextmanager
async def connect_proxy():
    """An HTTP proxy that does CONNECT only; gives its port and what it was asked for."""
    asked = []
    tunnels = set()

    async def pump(reader, writer):
        try:
            while data := await reader.read(64 * KIB):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        host, port = head.split()[1].decode().rsplit(":", 1)
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        pumps = (pump(reader, inner_writer), pump(inner_reader, writer))
        tunnels.update(asyncio.create_task(each) for each in pumps)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        for tunnel in tunnels:
            tunnel.cancel()
        await asyncio.gather(*tunnels, return_exceptions=True)


@case
async def a_proxy_is_honoured():
    async with stub() as control, connect_proxy() as (proxy, asked):
        others = ("no_proxy", "NO_PROXY", "https_proxy", "http_proxy", "grpc_proxy")
        env = {**dict.fromkeys(others), "HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        async with worker(control.port, env=env):
            await control.do("accept")
            await control.do("heartbeat")
            assert asked == [f"CONNECT 127.0.0.1:{control.port} HTTP/1.1"], asked
