#!/usr/bin/python3
# Runs the reference worker against the control plane stub, over loopback, and exits 0 or 1.
#
# Owns the cases: what a worker has to do by PROTOCOL.md, said as steps of the stub. Waits for events
# only, never for time to pass; every wait is bounded. `selftest.py NAME...` runs some cases only.
# WORKER="command" tests another worker that takes the same options.

import asyncio
import base64
import os
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
from contextlib import asynccontextmanager
from json import dumps, loads
from pathlib import Path

sys.dont_write_bytecode = True

HERE = Path(__file__).resolve().parent
KIB = 1024
CASE_SECONDS = int(os.environ.get("CASE_SECONDS", "60"))
EXIT_SECONDS = 20
LINE_LIMIT = 4 * KIB * KIB

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def b64(data):
    return base64.b64encode(data).decode()


class Process:
    """A child of the test, bounded by the case that it belongs to."""

    def __init__(self, process):
        self.process = process

    @classmethod
    async def start(cls, argv, **options):
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
        env = {name: value for name, value in env.items() if value is not None}
        process = await asyncio.create_subprocess_exec(*argv, env=env, limit=LINE_LIMIT, **options)
        return cls(process)

    async def code(self):
        return await asyncio.wait_for(self.process.wait(), EXIT_SECONDS)

    async def stop(self):
        """Has a worker kill its programs: SIGTERM until it has gone, as equal signals melt into one."""
        for _ in range(50):
            if self.process.returncode is not None:
                return
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 0.2)
            except asyncio.TimeoutError:
                continue
        await self.kill()

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


class Stub(Process):
    """The control plane stub; gives the done event of each step, with what came meanwhile."""

    port = 0

    async def do(self, step, **fields):
        done = await self.attempt(step, **fields)
        assert "error" not in done, f"{step}: {done['error']}"
        return done

    async def attempt(self, step, **fields):
        line = dumps({"do": step, **fields}) + "\n"
        self.process.stdin.write(line.encode())
        await self.process.stdin.drain()
        meanwhile = []
        while (event := await self.event())["event"] != "done":
            meanwhile.append(event)
        return {**event, "meanwhile": meanwhile}

    async def event(self):
        line = await self.process.stdout.readline()
        assert line, "the stub has gone"
        return loads(line)

    # -- shorthands

    async def call(self, method, request=None, **fields):
        return (await self.do("call", method=method, request=request or {}, **fields))["end"]

    async def ok(self, method, request=None, **fields):
        end = await self.call(method, request, **fields)
        assert "error" not in end, f"{method}: {end}"
        return end.get("response", end)

    async def fails(self, code, reason, method, request=None):
        expect_error(await self.call(method, request), code, reason)

    async def claim(self, task="t1", epoch=1, **fields):
        return await self.ok("worker.Claim", {"task_id": task, "epoch": epoch, **fields})

    async def run(self, command, **fields):
        """Runs a command to its end: its exit item, and its stdout."""
        done = await self.do("exec", command=command, **fields)
        assert "error" not in done["end"], done["end"]
        return done["last"]["exit"], done["output"]


def expect_error(end, code, reason=""):
    start = f"{code}: [{reason}]" if reason else f"{code}: "
    assert end and end.get("error", "").startswith(start), f"{end} is not {start}"


@asynccontextmanager
async def stub(tls=(), **config):
    argv = ["/usr/bin/python3", str(HERE / "control_plane_stub.py"), "--keep-going", *tls]
    pipe = asyncio.subprocess.PIPE
    control = await Stub.start(argv, stdin=pipe, stdout=pipe)
    try:
        control.port = (await control.event())["port"]
        await control.do("config", **config)
        yield control
    finally:
        await control.kill()


@asynccontextmanager
async def worker(port, *options, env=None, url="http://127.0.0.1"):
    command = shlex.split(os.environ.get("WORKER", ""))
    argv = command or ["/usr/bin/python3", str(HERE / "reference_worker.py")]
    argv += ["--token", "secret-token", "--delay-scale", "0.05", *options]
    process = await Process.start([*argv, f"{url}:{port}"], env=env or {})
    try:
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def pair(*options, **config):
    """A stub and a worker that has connected."""
    async with stub(**config) as control, worker(control.port, *options) as process:
        accepted = await control.do("accept")
        yield control, process, accepted["metadata"]


# -- connecting


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


# -- claims


@case
async def claims_follow_the_table_of_refusals():
    async with pair() as (control, _, _):
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        await control.fails("invalid_argument", "", "worker.Claim", {"task_id": "a/b", "epoch": 1})
        await control.fails("invalid_argument", "", "worker.Claim", {"task_id": "t1"})
        claimed = await control.claim(epoch=5, env={"A": "1"})
        assert claimed["root"].startswith("/") and claimed["home"].startswith("/")
        assert claimed["os"] == "linux" and claimed["arch"] in ("x86_64", "aarch64")
        for epoch in (4, 5):
            request = {"task_id": "t1", "epoch": epoch}
            await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", request)
        other = {"task_id": "t2", "epoch": 1}
        await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", other)
        for claim, code, reason in (
            ({"task_id": "t1", "epoch": 4}, "aborted", "STALE_EPOCH"),
            ({"task_id": "t1", "epoch": 6}, "aborted", "STALE_EPOCH"),
            ({"task_id": "t2", "epoch": 5}, "failed_precondition", "NOT_CLAIMED"),
        ):
            await control.fails(code, reason, "fs.Stat", {"path": ".", "claim": claim})
        await control.ok("fs.Stat", {"path": ".", "claim": {"task_id": "t1", "epoch": 5}})
        await control.ok("fs.Stat", {"path": "."})


@case
async def a_higher_epoch_takes_the_claim():
    async with pair() as (control, _, _):
        old = await control.claim(epoch=5)
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "old"})
        new = await control.claim(epoch=6)
        assert old["root"] != new["root"]
        ended = (await control.do("wait", **{"as": "old"}))["last"]["exit"]
        assert ended["signal"] == "SIGKILL", ended
        stale = {"claim": {"task_id": "t1", "epoch": 5}}
        await control.fails("aborted", "STALE_EPOCH", "worker.Release", stale)
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 6}})
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 6}})


@case
async def release_kills_and_forgets():
    async with pair() as (control, _, _):
        root = (await control.claim(env={"SECRET": "1"}))["root"]
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "running"})
        released = await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert released == {"killed": 1}, released
        assert not os.path.exists(root)
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        await control.claim(task="t2")
        assert (await control.run("echo ${SECRET-gone}"))[1] == "gone\n"


@case
async def slots_hold_several_claims():
    async with pair("--slots", "2") as (control, _, _):
        await control.claim("t1")
        await control.claim("t2")
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", {"path": "."})
        third = {"task_id": "t3", "epoch": 1}
        await control.fails("already_exists", "ALREADY_CLAIMED", "worker.Claim", third)
        beat = await control.do("heartbeat", holds="t2")
        assert sorted(beat["holding"]) == ["t1", "t2"]


@case
async def a_clone_that_fails_holds_nothing():
    async with pair() as (control, _, _):
        request = {"task_id": "t1", "epoch": 1, "repo_url": "https://127.0.0.1:1/x.git"}
        await control.fails("failed_precondition", "CLONE_FAILED", "worker.Claim", request)
        request["repo_url"] = "file:///etc"
        await control.fails("invalid_argument", "", "worker.Claim", request)
        await control.claim()


@case
async def drain_finishes_and_exits_0():
    async with pair() as (control, process, _):
        await control.claim()
        drained = await control.ok("worker.Drain")
        assert drained["claims"] == [{"task_id": "t1", "epoch": "1"}]
        request = {"task_id": "t2", "epoch": 1}
        await control.fails("unavailable", "DRAINING", "worker.Claim", request)
        assert (await control.run("echo still"))[1] == "still\n"
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert (await control.do("gone"))["by"] in ("half-closed", "closed")
        assert await process.code() == 0


@case
async def sigterm_drains_and_a_second_one_kills():
    async with pair() as (control, process, _):
        await control.do("heartbeat")
        process.process.send_signal(signal.SIGTERM)
        assert await process.code() == 0
    async with pair() as (control, process, _):
        root = (await control.claim())["root"]
        await control.do("exec", command="sleep 1000", wait="started")
        process.process.send_signal(signal.SIGTERM)
        # A barrier proves that it still serves; only then may the second signal come.
        await control.do("barrier")
        request = {"task_id": "t2", "epoch": 1}
        for _ in range(100):  # until the first signal has arrived
            end = await control.call("worker.Claim", request)
            if "DRAINING" in end["error"]:
                break
        process.process.send_signal(signal.SIGTERM)
        assert await process.code() == 1
        assert not os.path.exists(root)


@case
async def once_exits_after_its_first_claim():
    async with pair("--once") as (control, process, _):
        await control.claim()
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})
        assert await process.code() == 0


@case
async def the_loss_of_a_stream_ends_its_claims():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        await control.do("exec", command="sleep 1000", wait="started")
        await control.do("close", code="unavailable", message="[SHUTDOWN] later")
        await control.do("accept")
        assert not os.path.exists(root)
        await control.claim()


# -- heartbeats


@case
async def heartbeats_that_are_answered_keep_a_claim():
    async with pair() as (control, _, _):
        await control.claim(claim_ttl_seconds=2)
        await control.do("heartbeat", holds="t1", count=4, timeout=20)
        await control.ok("fs.Stat", {"path": "."})


@case
async def heartbeats_that_are_not_answered_end_a_claim():
    # The stream would be reset after 5 s of silence.
    async with pair(heartbeat_seconds=2) as (control, _, _):
        await control.claim(claim_ttl_seconds=3)
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "run"})
        await control.do("config", answer_heartbeats=False)
        ended = await control.do("wait", timeout=20, **{"as": "run"})
        assert ended["last"]["exit"]["signal"] == "SIGKILL"
        await control.do("config", answer_heartbeats=True)
        await control.do("heartbeat")
        claim = {"claim": {"task_id": "t1", "epoch": 1}, "path": "."}
        await control.fails("failed_precondition", "NOT_CLAIMED", "fs.Stat", claim)


@case
async def a_control_plane_that_says_nothing_is_left():
    async with pair(answer_heartbeats=False) as (control, _, _):
        await control.do("gone")
        await control.do("accept")
    # Where heartbeats are not answered nothing has to come.
    async with pair(methods=[]) as (control, _, _):
        await control.do("heartbeat", count=4)


@case
async def a_dropped_claim_ends_at_once():
    async with pair() as (control, _, _):
        await control.claim()
        await control.do("exec", command="sleep 1000", wait="started", **{"as": "run"})
        await control.do("config", renew=[], drop=[{"task_id": "t1", "epoch": 1}])
        ended = await control.do("wait", **{"as": "run"})
        assert ended["last"]["exit"]["signal"] == "SIGKILL"
        assert ended["last"]["exit"]["reason"] == "interrupted"


@case
async def a_plain_peer_gets_notices_and_may_keep_its_headers_back():
    config = {"methods": [], "bare_headers": True, "late_headers": True}
    async with pair(**config) as (control, _, _):
        beat = await control.do("heartbeat", count=1)
        assert beat["holding"] == []
        await control.claim(claim_ttl_seconds=1)
        assert (await control.run("echo plain"))[1] == "plain\n"
        big = await control.do("exec", command="head -c 3000000 /dev/zero")
        assert big["end"]["length"] == 3_000_000 and not big["last"]["exit"].get("signal")
        assert not [event for event in big["meanwhile"] if event["event"] == "credit"]
        await control.do("upload", items=[upload_head("big", 2 << 20)], fill=2 << 20)
        assert (await control.ok("fs.Stat", {"path": "big"}))["stat"]["size"] == str(2 << 20)


@case
async def a_plain_worker_lists_nothing_and_serves_all_the_same():
    async with pair("--plain") as (control, _, metadata):
        assert not metadata.get("x-worker-methods") and "x-worker-secret" not in metadata
        await control.do("heartbeat")
        await control.claim()
        big = await control.do("exec", command="head -c 1000000 /dev/zero")
        assert big["end"]["length"] == 1_000_000
        await control.do("close", code="unavailable", message="[SHUTDOWN] later")
        await control.do("accept")


# -- programs


@case
async def a_program_gives_its_output_and_its_exit():
    async with pair() as (control, _, _):
        root = (await control.claim(env={"A": "claim", "B": "claim"}))["root"]
        command = "pwd; echo $A $B; echo oops >&2; exit 3"
        done = await control.do("exec", command=command, env={"B": "exec"}, exec_id="e1")
        items = [event["item"] for event in done["meanwhile"] if event["event"] == "item"]
        assert items[0]["started"]["exec_id"] == "e1" and items[0]["started"]["pid"] > 0
        assert [int(item["seq"]) for item in items] == list(range(1, len(items) + 1))
        assert done["output"] == f"{root}\nclaim exec\n"
        errors = [base64.b64decode(item["stderr"]) for item in items if "stderr" in item]
        assert b"".join(errors) == b"oops\n"
        exit_item = done["last"]["exit"]
        assert exit_item["exit_code"] == 3 and exit_item["reason"] == "exit"
        assert exit_item["stderr_bytes"] == "5"
        again = {"command": "true", "exec_id": "e1"}
        expect_error((await control.do("exec", **again))["end"], "already_exists")


@case
async def programs_that_cannot_or_must_not_run():
    async with pair() as (control, _, _):
        await control.claim()
        for bad in ({}, {"command": "true", "argv": ["true"]}, {"command": "x", "exec_id": "a/b"}):
            expect_error((await control.do("exec", **bad))["end"], "invalid_argument")
        never = (await control.do("exec", argv=["/does/not/exist"]))["last"]
        assert never["seq"] == "1" and never["exit"]["reason"] == "setup_failed"
        assert never["exit"]["message"] and "exit_code" not in never["exit"]
        outside = (await control.do("exec", command="true", cwd="../.."))["end"]
        expect_error(outside, "permission_denied", "PATH_ESCAPES")


@case
async def a_program_gets_input():
    async with pair() as (control, _, _):
        await control.claim()
        _, output = await control.run("cat; echo end", stdin=b64(b"first "))
        assert output == "first end\n"
        start = {"command": "cat", "stdin": b64(b"ab"), "stdin_open": True, "exec_id": "e"}
        await control.do("exec", wait="started", **start, **{"as": "cat"})
        await control.do("wait", until="output", contains="ab", **{"as": "cat"})
        feed = {"exec_id": "e", "input": b64(b"bcd"), "offset": 1}
        assert await control.ok("exec.Input", feed) == {"taken_bytes": "4"}
        beyond = {"exec_id": "e", "input": b64(b"x"), "offset": 9}
        await control.fails("out_of_range", "", "exec.Input", beyond)
        await control.fails("not_found", "", "exec.Input", {"exec_id": "nobody"})
        last = {"exec_id": "e", "input": b64(b"!"), "close": True}
        assert await control.ok("exec.Input", last) == {"taken_bytes": "5"}
        done = await control.do("wait", **{"as": "cat"})
        assert done["output"] == "abcd!", done["output"]
        await control.fails("failed_precondition", "", "exec.Input", last)


@case
async def a_program_gets_signals_and_its_time():
    async with pair() as (control, _, _):
        await control.claim()
        trap = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
        await control.do("exec", command=trap, exec_id="s", wait="none", **{"as": "run"})
        await control.do("wait", until="output", contains="ready", **{"as": "run"})
        await control.fails("invalid_argument", "", "exec.Signal", {"exec_id": "s", "signal": "X"})
        await control.ok("exec.Signal", {"exec_id": "s", "signal": "SIGUSR1"})
        done = await control.do("wait", **{"as": "run"})
        assert done["output"] == "ready\ngot\n" and done["last"]["exit"]["exit_code"] == 7
        await control.ok("exec.Signal", {"exec_id": "s", "signal": "SIGTERM"})
        killed, _ = await control.run("kill -9 $$")
        assert killed["signal"] == "SIGKILL" and killed["reason"] == "signal"
        late, _ = await control.run("sleep 1000 | sleep 1000", timeout_ms=200)
        assert late["reason"] == "wall_limit" and "exit_code" not in late


@case
async def what_outlives_a_program_is_killed():
    async with pair() as (control, _, _):
        await control.claim()
        # The second one says so itself once it has left the session.
        command = """
            sleep 1000 & echo $!
            mkfifo p; setsid sh -c 'echo $$ > p; exec sleep 1000' & read pid < p; echo $pid
        """
        exit_item, output = await control.run(command)
        assert exit_item["exit_code"] == 0 and exit_item["killed"] == 2, exit_item
        assert_gone(output.split())


def assert_gone(pids):
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        assert state[0] in "ZX", f"{pid} still runs"


@case
async def cancel_kills_the_descendants_and_then_answers():
    async with pair() as (control, _, _):
        await control.claim()
        command = "sleep 1000 & echo $!; (sleep 1000; true) & echo $!; echo $$; wait"
        await control.do("exec", command=command, wait="none", **{"as": "run"})
        await control.do("wait", until="item", count=2, **{"as": "run"})
        done = await control.do("cancel", reason="enough", **{"as": "run"})
        expect_error(done["end"], "canceled")
        assert "exit" not in done["last"]
        assert_gone(done["output"].split())
        await control.do("cancel", **{"as": "run"})  # its end has crossed this one
        assert (await control.run("echo usable"))[1] == "usable\n"


@case
async def only_the_last_output_is_retained():
    async with pair() as (control, _, _):
        await control.claim()
        done = await control.do("exec", command="seq 1 100000", retain_bytes=100)
        assert len(done["output"]) == 100 and done["output"].endswith("99999\n100000\n")
        assert done["last"]["exit"]["stdout_bytes"] == "588895"


@case
async def credit_holds_a_program_back():
    async with pair(grant=False) as (control, _, _):
        await control.claim()
        run = {"as": "run"}
        await control.do("exec", command="head -c 1000000 /dev/zero", wait="none", **run)
        full = 256 * KIB
        await control.do("wait", until="bytes", count=full, **run)
        await control.do("barrier")
        state = await control.do("wait", until="item", **run)
        assert full <= state["bytes"] <= full + 64 * KIB + 128, state["bytes"]
        assert state["end"] is None
        # Other calls are not held back.
        await control.ok("fs.Stat", {"path": "."})
        await control.do("grant", bytes=1, **run)
        await control.do("grant", bytes=2_000_000, **run)
        done = await control.do("wait", **run)
        assert done["end"]["length"] == 1_000_000


@case
async def cancel_reaches_a_program_that_waits_for_credit():
    async with pair(grant=False) as (control, _, _):
        await control.claim()
        await control.do("exec", command="cat /dev/zero", wait="none", **{"as": "run"})
        await control.do("wait", until="item", count=4, **{"as": "run"})
        expect_error((await control.do("cancel", **{"as": "run"}))["end"], "canceled")
        await control.ok("worker.Release", {"claim": {"task_id": "t1", "epoch": 1}})


# -- files


@case
async def files_are_written_read_listed_and_removed():
    async with pair() as (control, _, _):
        await control.claim()
        write = {"path": "d/e/f.txt", "content": b64(b"hello"), "mode": 0o640}
        await control.fails("not_found", "", "fs.WriteFile", write)
        await control.ok("fs.WriteFile", {**write, "parents": True})
        read = await control.ok("fs.ReadFile", {"path": "d/e/f.txt", "offset": 1, "length": 3})
        assert read == {"content": b64(b"ell"), "size": "5", "mode": 0o640}, read
        found = (await control.ok("fs.Stat", {"path": "d/e"}))["stat"]
        assert found["name"] == "e" and found["type"] == "directory"
        await control.fails("already_exists", "", "fs.MakeDir", {"path": "d"})
        await control.ok("fs.MakeDir", {"path": "d/x/y", "parents": True, "mode": 0o700})
        await control.ok("fs.MakeDir", {"path": "d/x/y", "parents": True})
        first = await control.ok("fs.ListDir", {"path": "d", "limit": 1})
        assert [entry["name"] for entry in first["entries"]] == ["e"] and first["more"]
        rest = await control.ok("fs.ListDir", {"path": "d", "after": "e"})
        assert [entry["name"] for entry in rest["entries"]] == ["x"] and "more" not in rest
        await control.ok("fs.Rename", {"from": "d/e/f.txt", "to": "d/g.txt"})
        await control.fails("already_exists", "", "fs.Rename", {"from": "d/g.txt", "to": "d/x"})
        await control.fails("failed_precondition", "", "fs.Remove", {"path": "d"})
        assert await control.ok("fs.Remove", {"path": "d", "recursive": True}) == {"existed": True}
        assert await control.ok("fs.Remove", {"path": "d"}) == {}


@case
async def paths_and_failures_have_their_codes():
    async with pair("--max-read-bytes", "10") as (control, _, _):
        claimed = await control.claim()
        await control.run("ln -s /etc out; ln -s f in; echo content-of-f > f; mkdir d; mkfifo p")
        for path in ("../x", "/etc/passwd", "out/passwd", "d/../../x"):
            await control.fails("permission_denied", "PATH_ESCAPES", "fs.ReadFile", {"path": path})
        await control.fails("failed_precondition", "IS_LINK", "fs.ReadFile", {"path": "in"})
        write = {"path": "in", "content": b64(b"x")}
        await control.fails("failed_precondition", "IS_LINK", "fs.WriteFile", write)
        link = (await control.ok("fs.Stat", {"path": "in"}))["stat"]
        assert link["type"] == "link" and link["link_target"] == "f"
        await control.fails("not_found", "", "fs.ReadFile", {"path": "nothing"})
        for path in ("d", "f/x", "p"):
            await control.fails("failed_precondition", "", "fs.ReadFile", {"path": path})
        await control.fails("failed_precondition", "", "fs.ListDir", {"path": "f"})
        await control.fails("out_of_range", "TOO_LARGE", "fs.ReadFile", {"path": "f"})
        await control.ok("fs.ReadFile", {"path": "f", "length": 10})
        home = claimed["home"]
        await control.ok("fs.WriteFile", {"path": f"{home}/x", "content": b64(b"x")})
        assert (await control.ok("fs.Remove", {"path": "in"})) == {"existed": True}
        await control.ok("fs.Stat", {"path": "f"})


# -- transfers


def upload_head(path, size=0, kind="file", **fields):
    transfer = {"type": kind, "mode": 0o644 if kind == "file" else 0o755, "size": size}
    return {"head": {"path": path, "transfer": transfer, **fields}}


@case
async def uploads_follow_credit_and_leave_all_or_nothing():
    async with pair() as (control, _, _):
        await control.claim()
        size = 3_000_000
        done = await control.do("upload", items=[upload_head("big", size)], fill=size)
        assert done["end"]["response"] == {"bytes": str(size), "entries": "1"}
        grants = [event for event in done["meanwhile"] if event["event"] == "credit"]
        assert grants and all(grant["upload"] for grant in grants)
        assert all(64 * KIB <= int(grant["bytes"]) <= 192 * KIB for grant in grants)
        down = await control.do("download", path="big")
        assert down["end"]["length"] == size
        short = await control.do("upload", items=[upload_head("bad", 10)], fill=5)
        expect_error(short["end"], "invalid_argument")
        expect_error((await control.do("upload", items=[]))["end"], "invalid_argument")
        half = {"as": "half", "end": False, "wait": "none"}
        await control.do("upload", items=[upload_head("half", 10)], fill=5, **half)
        expect_error((await control.do("cancel", **{"as": "half"}))["end"], "canceled")
        names = (await control.ok("fs.ListDir", {"path": "."}))["entries"]
        assert [entry["name"] for entry in names] == ["big"], names


@case
async def an_upload_beyond_its_credit_is_refused():
    async with pair() as (control, _, _):
        await control.claim()
        big = 2_000_000
        greedy = {"items": [upload_head("big", big)], "fill": big, "chunk": 200_000}
        done = await control.do("upload", ignore_credit=True, **greedy)
        # All of it may have been consumed in time; if not, that is the only other answer.
        if "error" in done["end"]:
            expect_error(done["end"], "resource_exhausted")
        await control.do("barrier")
        await control.ok("fs.Stat", {"path": "."})


@case
async def directories_and_links_come_back_as_they_went():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        setup = "mkdir -p a/b; echo one > a/1; echo two > a/b/2; ln -s 1 a/l; ln a/1 a/hard"
        await control.run(setup + "; chmod 750 a/1; tar -C a -cf tar --format=pax 1 b l")
        down = await control.do("download", path="a")
        heads = [event["item"] for event in down["meanwhile"] if event["event"] == "item"]
        assert heads[0]["head"]["type"] == "directory", heads[0]
        archive = Path(root, "tar").read_bytes()
        item = {"chunk": b64(archive)}
        dotted = "tar -C a --exclude=./hard -cf dotted --format=pax ."
        await control.run(dotted)
        with_dots = {"chunk": b64(Path(root, "dotted").read_bytes())}
        made = await control.do("upload", items=[upload_head("dots", 0, "directory"), with_dots])
        assert made["end"]["response"] == {"bytes": "8", "entries": "4"}, made["end"]
        made = await control.do("upload", items=[upload_head("new", 0, "directory"), item])
        assert made["end"]["response"] == {"bytes": "8", "entries": "4"}, made["end"]
        _, output = await control.run("cat new/1 new/b/2; readlink new/l; stat -c %a new/1; ls new")
        assert output == "one\ntwo\n1\n750\n1\nb\nl\n", output
        await control.run("echo three > new/3; echo changed > new/1")
        merge = upload_head("new", 0, "directory", merge=True)
        await control.do("upload", items=[merge, item])
        assert (await control.run("cat new/1; ls new"))[1] == "one\n1\n3\nb\nl\n"
        await control.do("upload", items=[upload_head("new", 0, "directory"), item])
        assert (await control.run("ls new"))[1] == "1\nb\nl\n"
        link = {"head": {"path": "ln", "transfer": {"type": "link", "link_target": "a/1"}}}
        await control.do("upload", items=[link])
        down = await control.do("download", path="ln")
        assert down["last"]["head"]["link_target"] == "a/1" and down["items"] == 1


@case
async def archives_that_lead_out_are_refused():
    async with pair() as (control, _, _):
        root = (await control.claim())["root"]
        make = "mkdir s; echo x > s/x; ln -s /tmp s/l; ln s/x s/h; tar -cPf up ../${PWD##*/}/s/x"
        await control.run(make + "; tar -C s -cf hard x h; tar -C s -cf cut x; truncate -s 700 cut")
        await control.run("tar -C s -cf link l; mkdir -p r/l; echo y > r/l/y; tar -C r -rf link l/y")
        for name in ("up", "hard", "cut", "link"):
            item = {"chunk": b64(Path(root, name).read_bytes())}
            done = await control.do("upload", items=[upload_head("t", 0, "directory"), item])
            expect_error(done["end"], "invalid_argument", "BAD_ARCHIVE")
            await control.fails("not_found", "", "fs.Stat", {"path": "t"})


# -- frames that break the rules


@case
async def bad_frames_are_answered_as_the_table_says():
    async with pair() as (control, _, _):
        await control.claim()
        frame = control.do

        async def silent(**fields):
            done = await frame("frame", **fields)
            barrier = await control.do("barrier")
            strays = [*done["meanwhile"], *barrier["meanwhile"]]
            assert not [event for event in strays if event["event"] == "stray"], strays

        await silent(id="unknown")
        await silent(method="fs.Stat")
        await silent(id="x" * 129, method="fs.Stat")
        await silent(id="unknown", kind=2)
        await silent(id="unknown", kind=3, error="internal: no")
        for kind in (0, 4, 77):
            await silent(id=f"k{kind}", method="fs.Stat", kind=kind)
        await silent(method="/internal/cancel", payload=b64(b"\xff\xff"))
        await silent(method="/internal/credit", payload=b64(b"\xff"))
        for number, (method, payload, code) in enumerate(
            (
                ("m" * 129, b"", "invalid_argument"),
                ("no.Such", b"", "unimplemented"),
                ("fs.Stat", b"\xff\xff", "invalid_argument"),
                ("exec.Start", b"\xff", "invalid_argument"),
                ("fs.Upload", b"\xff", "invalid_argument"),
            )
        ):
            name = f"bad{number}"
            fields = {"id": name, "as": name, "method": method, "payload": b64(payload)}
            expect_error((await frame("frame", **fields))["end"], code)
        big = {"id": "big", "as": "big", "method": "fs.WriteFile", "fill": 3_407_873}
        expect_error((await frame("frame", **big))["end"], "invalid_argument")


@case
async def an_id_in_use_loses_both_calls():
    async with pair() as (control, _, _):
        await control.claim()
        start = {"command": "echo $$; sleep 1000", "wait": "none", "id": "dup", "as": "dup"}
        await control.do("exec", **start)
        await control.do("wait", until="item", count=2, **{"as": "dup"})
        await control.do("frame", id="dup", method="fs.Stat")
        done = await control.do("wait", **{"as": "dup"})
        expect_error(done["end"], "already_exists")
        assert_gone(done["output"].split())
        barrier = await control.do("barrier")
        assert not [event for event in barrier["meanwhile"] if event["event"] == "stray"]


@case
async def items_after_an_early_answer_are_dropped():
    async with pair() as (control, _, _):
        await control.claim()
        head = upload_head("../out", 5)
        upload = {"items": [head], "end": False, "id": "early", "as": "early"}
        expect_error((await control.do("upload", **upload))["end"], "permission_denied")
        await control.do("frame", id="early", fill=100, times=1500)
        await control.do("frame", id="early", method="fs.Upload", fill=100)
        await control.do("frame", id="early")
        # Of an unknown method nobody knows whether it takes items.
        unknown = {"id": "none", "as": "none", "method": "no.Such", "fill": 100}
        expect_error((await control.do("frame", **unknown))["end"], "unimplemented")
        await control.do("frame", id="none", fill=100, times=1500)
        barrier = await control.do("barrier")
        assert not [event for event in barrier["meanwhile"] if event["event"] == "stray"]


@case
async def a_stream_that_is_broken_is_dialled_again():
    async with pair() as (control, _, _):
        await control.do("raw", base64=b64(b"\xff\xff\xff"))
        await control.do("gone")
        await control.do("accept")
        await control.do("raw", fill=4 * KIB * KIB + 1)
        await control.do("gone")
        await control.do("accept")
        await control.do("frame", kind=0, times=1000)
        await control.do("barrier")
        await control.do("frame", kind=0)
        await control.do("gone")
        await control.do("accept")


@case
async def input_that_waits_ends_with_its_program():
    async with pair() as (control, _, _):
        await control.claim()
        start = {"command": "sleep 1000", "exec_id": "hold", "stdin_open": True}
        await control.do("exec", wait="started", **start, **{"as": "hold"})
        feed = {"exec_id": "hold", "input": b64(b"x" * 100_000)}  # more than a pipe takes
        for name in ("first", "second"):
            await control.call("exec.Input", feed, wait="none", **{"as": name})
        await control.do("barrier")
        expect_error((await control.do("cancel", **{"as": "second"}))["end"], "canceled")
        expect_error((await control.do("cancel", **{"as": "hold"}))["end"], "canceled")
        first = await control.do("wait", **{"as": "first"})
        expect_error(first["end"], "failed_precondition")


# -- the peer by itself, with handlers that do not take what they are given


class Harness:
    """A peer whose frames are kept; its handlers wait until they are given up."""

    def __init__(self, credit):
        import peer
        from wire import pb

        self.pb = pb
        self.frames = asyncio.Queue()
        self.module = peer
        methods = {
            "up": peer.Method(peer.CLIENT_STREAM, pb.FsUploadItem, self._hang),
            "one": peer.Method(peer.UNARY, pb.FsStatRequest, self._hang),
        }
        self.peer = peer.Peer(self._keep, methods)
        self.peer.credit = credit

    async def _keep(self, data):
        await self.frames.put(self.pb.Envelope.FromString(data))

    @staticmethod
    async def _hang(*_):
        await asyncio.get_running_loop().create_future()

    async def request(self, call_id, method="", payload=b""):
        frame = self.pb.Envelope(id=call_id, method=method, payload=payload, kind=1)
        await self.peer.receive(frame.SerializeToString())

    async def error(self, call_id):
        frame = await self.frames.get()
        assert frame.id == call_id, frame
        return frame.error


async def fill_an_upload(credit, count):
    harness = Harness(credit)
    harness.module.PLAIN_PATIENCE = 0.1
    item = harness.pb.FsUploadItem(chunk=b"x" * (64 * KIB)).SerializeToString()
    await harness.request("up", "up", item)
    for _ in range(count - 1):
        await harness.request("up", "", item)
    return harness


@case
async def items_beyond_the_credit_end_the_call():
    harness = await fill_an_upload(credit=True, count=4)
    assert harness.frames.empty() and harness.peer.calls["up"].verdict is None
    await harness.request("up", "", b"\x12\x00")
    assert (await harness.error("up")).startswith("resource_exhausted: ")
    await harness.peer.close()


@case
async def without_credit_a_call_that_takes_nothing_is_given_up():
    harness = await fill_an_upload(credit=False, count=15)
    assert harness.frames.empty() and harness.peer.calls["up"].verdict is None
    await harness.peer.close()
    harness = await fill_an_upload(credit=False, count=17)
    assert (await harness.error("up")).startswith("resource_exhausted: ")
    await harness.request("x", "no.Such")
    assert (await harness.error("x")).startswith("unimplemented: ")
    await harness.peer.close()


@case
async def frames_that_are_dropped_are_counted_late_ones_are_not():
    harness = Harness(credit=False)
    pb = harness.pb
    for method, payload in (("", b"x"), ("/internal/cancel", b"\xff"), ("/internal/credit", b"")):
        before = harness.peer.dropped
        await harness.request("x", method, payload)
        assert harness.peer.dropped == before + 1, method
    # The id of a cancel is not looked at.
    await harness.request("one", "one")
    cancel = pb.CancelRequest(request_id="one").SerializeToString()
    await harness.request("i" * 200, "/internal/cancel", cancel)
    assert (await harness.error("one")).startswith("canceled: ")
    await harness.request("", "/internal/cancel", cancel)
    await harness.peer.notice("n", pb.CancelRequest())
    used = (await harness.frames.get()).id
    for call_id in (used, "w2"):
        late = pb.Envelope(id=call_id, kind=pb.Envelope.RESPONSE)
        await harness.peer.receive(late.SerializeToString())
    assert harness.peer.dropped == 4, harness.peer.dropped
    await harness.peer.close()


@case
async def codes_and_reasons_are_read_as_they_are_written():
    from wire import reason_of, split_error

    texts = {
        "aborted: [A] b": ("aborted", "[A] b"), "aborted:b": ("aborted", "b"),
        "aborted:": ("aborted", ""), "aborted": ("unknown", "aborted"),
        "nonsense: b": ("unknown", "nonsense: b"),
    }  # fmt: skip
    for text, read in texts.items():
        assert split_error(text) == read, text
    words = {"[A_1] b": "A_1", "[a] b": "", "[1A] b": "", "A b": "", "[A": "", "[]": ""}
    for text, word in words.items():
        assert reason_of(text) == word, text


@case
async def open_calls_and_their_bytes_are_bounded():
    harness = Harness(credit=True)
    for number in range(1024):
        await harness.request(str(number), "one")
    await harness.request("more", "one")
    assert (await harness.error("more")).startswith("resource_exhausted: ")
    await harness.peer.close()
    harness = Harness(credit=True)
    payload = harness.pb.FsStatRequest(path="x" * (3 << 20)).SerializeToString()
    for number in range(5):
        await harness.request(str(number), "one", payload)
    await harness.request("more", "one", payload)
    assert (await harness.error("more")).startswith("resource_exhausted: ")
    await harness.request("less", "one")
    assert harness.frames.empty() and len(harness.peer.calls) == 6
    await harness.peer.close()


# -- running them


async def run_case(name):
    try:
        await asyncio.wait_for(CASES[name](), CASE_SECONDS)
        return True
    except BaseException as error:  # noqa: BLE001
        traceback.print_exception(error)
        return False


async def main(names):
    failed = []
    for name in names or CASES:
        began = time.monotonic()
        good = await run_case(name)
        seconds = time.monotonic() - began
        print(f"{'ok' if good else 'FAILED'} {name} ({seconds:.1f} s)", flush=True)
        if not good:
            failed.append(name)
    print(f"{len(names or CASES) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
