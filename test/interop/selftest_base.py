# What the cases of selftest.py share: processes, the control plane stub, a worker that has connected.
#
# WORKER="command" is another worker that takes the options of the reference.

import asyncio
import base64
import os
import shlex
from contextlib import asynccontextmanager
from json import dumps, loads
from pathlib import Path

HERE = Path(__file__).resolve().parent
KIB = 1024
EXIT_SECONDS = int(os.environ.get("EXIT_SECONDS", "20"))
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


def upload_head(path, size=0, kind="file", **fields):
    transfer = {"type": kind, "mode": 0o644 if kind == "file" else 0o755, "size": size}
    return {"head": {"path": path, "transfer": transfer, **fields}}


def assert_gone(pids):
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        assert state[0] in "ZX", f"{pid} still runs"


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
