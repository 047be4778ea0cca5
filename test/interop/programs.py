# Programs: exec.Start, exec.Input and exec.Signal (section 9).
#
# Owns the processes: their pipes, their timeout, and their end, which is sent only when no process
# of the exec runs any more. A process belongs to an exec if it is in its session, or carries its
# mark in the environment (a daemon that left the session). Linux only: it looks into /proc and waits
# with pidfds. Terminals, exec.Resize and exec.Attach are not served.

import asyncio
import os
import re
import secrets
import signal
import subprocess
import time

import files
from claims import check_env
from wire import KIB, Failure, pb

EXEC_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
MARK = "OUTRIGGER_REFERENCE_EXEC"
MAX_OUTPUT_ITEM = 64 * KIB
MAX_INPUT = 256 * KIB
MAX_RETAIN = 16 * KIB * KIB
MAX_EXECS = 4096  # of one claim, ended ones included
LAST_OUTPUT_SECONDS = 2.0  # for what is still in the pipes when all processes are gone

SIGNALS = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGKILL", "SIGSTOP",
    "SIGCONT", "SIGWINCH",
)  # fmt: skip


async def _readable(fd):
    """Waits until the descriptor is readable; a pidfd is, once its process has ended."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _writable(fd):
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(fd)


async def _process_end(pid):
    """Waits until a process has ended, be it a child or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await _readable(pidfd)
    finally:
        os.close(pidfd)


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read(128 * KIB)
    except OSError:
        return b""


def members_of(leader, mark):
    """The live processes of an exec, except its leader."""
    found = []
    marked = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in (leader, os.getpid()):
            continue
        fields = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
        if len(fields) < 4 or fields[0] in (b"Z", b"X"):
            continue
        if int(fields[3]) == leader or marked in _read(f"/proc/{entry}/environ").split(b"\0"):
            found.append(int(entry))
    return found


class Tail:
    """The last bytes of a stream, for `retain_bytes`."""

    def __init__(self, limit):
        self.limit = limit
        self.data = bytearray()

    def add(self, data):
        self.data += data
        del self.data[: max(0, len(self.data) - self.limit)]


class Run:
    """One exec, from its start until it is forgotten with its claim."""

    def __init__(self, call, claim, request, cwd):
        self.id = request.exec_id or f"exec-{secrets.token_hex(8)}"
        self.gone = asyncio.Event()  # no process of it runs any more
        self._call = call
        self._request = request
        self._claim = claim
        self._cwd = cwd
        self._mark = secrets.token_hex(16)
        self._seq = 0
        self._reason = ""
        self._process = None
        self._stopped = asyncio.Event()
        self._started_at = time.monotonic()
        self._sent = {"stdout": 0, "stderr": 0}
        self._killed = 0
        # Input.
        self._stdin = None
        self._taken = 0
        self._input_turn = asyncio.Lock()

    # -- its life

    async def serve(self):
        try:
            try:
                self._spawn()
            except (OSError, ValueError) as error:
                self.gone.set()
                await self._never_ran(error)
                return
            await self._follow()
        finally:
            self.gone.set()
            self._close_stdin()

    def stop(self, reason):
        """Kills it; `reason` is that of its exit, if it has none yet."""
        self._reason = self._reason or reason
        self._stopped.set()

    def signal(self, number):
        if self._process is not None and not self.gone.is_set():
            os.kill(self._process.pid, number)  # not waited for yet: the pid is still its own

    def _spawn(self):
        request = self._request
        argv = list(request.argv) or ["/bin/sh", "-c", request.command]
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": self._claim.home}
        env.update(self._claim.env)
        env.update(request.env)
        env[MARK] = self._mark
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, cwd=self._cwd, env=env, bufsize=0, start_new_session=True,
            stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)

    async def _never_ran(self, error):
        exit_item = pb.ExecExit(reason="setup_failed", message=str(error)[:1024])
        await self._send(exit=exit_item)

    async def _follow(self):
        loop = asyncio.get_running_loop()
        feeding = asyncio.create_task(self._feed())
        tails = [Tail(self._request.retain_bytes) for _ in range(2)]
        output = asyncio.create_task(self._output(tails))
        ending = asyncio.create_task(self._end())
        try:
            usage = await asyncio.shield(ending)
            duration = time.monotonic() - self._started_at
            # The pipes are drained as fast as the caller takes the items, however long that takes;
            # the end of file must come soon after the last process has gone.
            await output
            for name, tail in zip(("stdout", "stderr"), tails):
                await self._send_output(name, bytes(tail.data))
            await self._send(exit=self._exit(usage, duration))
        finally:
            self.stop("user")
            feeding.cancel()
            output.cancel()
            await asyncio.wait({ending, output, feeding})
            loop.call_soon(self._close_pipes)

    async def _end(self):
        """Waits for the end of the main process, or a stop; then for all others. Gives its usage."""
        main = asyncio.create_task(_process_end(self._process.pid))
        stopped = asyncio.create_task(self._stopped.wait())
        timeout = self._request.timeout_ms / 1000 or None
        await asyncio.wait({main, stopped}, timeout=timeout, return_when="FIRST_COMPLETED")
        if not main.done():
            self.stop("wall_limit")
            self._process.kill()
            await self._kill_others(counted=False)
            await main
        await self._kill_others(counted=True)
        stopped.cancel()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.gone.set()
        return usage

    async def _kill_others(self, counted):
        """Kills what is left until nothing is; its leader is not waited for yet, so ids hold."""
        while others := members_of(self._process.pid, self._mark):
            for pid in others:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue  # it has ended, or is not ours to kill: its end is waited for
            await asyncio.gather(*(_process_end(pid) for pid in others))
            if counted and not self._reason:
                self._killed += len(others)

    def _exit(self, usage, duration):
        # No memory_peak_bytes: ru_maxrss begins with what this worker had when it forked.
        code = self._process.returncode
        item = pb.ExecExit(
            duration_ms=round(duration * 1000),
            stdout_bytes=self._sent["stdout"],
            stderr_bytes=self._sent["stderr"],
            cpu_ms=round((usage.ru_utime + usage.ru_stime) * 1000),
            killed=self._killed,
        )
        if code >= 0:
            item.exit_code = code
        else:
            item.signal = signal.Signals(-code).name
        item.reason = self._reason or ("exit" if code >= 0 else "signal")
        return item

    # -- output

    async def _send(self, **item):
        self._seq += 1
        await self._call.send(pb.ExecItem(seq=self._seq, **item))

    async def _send_output(self, name, data):
        for start in range(0, len(data), MAX_OUTPUT_ITEM):
            await self._send(**{name: data[start : start + MAX_OUTPUT_ITEM]})

    async def _output(self, tails):
        await self._send(started=pb.ExecStarted(exec_id=self.id, pid=self._process.pid))
        sending = asyncio.Lock()  # both streams share one sequence
        await asyncio.gather(
            self._drain("stdout", self._process.stdout, tails[0], sending),
            self._drain("stderr", self._process.stderr, tails[1], sending),
        )

    async def _drain(self, name, pipe, tail, sending):
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        while data := await self._next_output(fd):
            self._sent[name] += len(data)
            if tail.limit:
                tail.add(data)
            else:
                async with sending:
                    await self._send(**{name: data})

    async def _next_output(self, fd):
        """The next bytes of a pipe; empty at its end, or if nothing comes after all have gone."""
        while True:
            try:
                return os.read(fd, MAX_OUTPUT_ITEM)
            except BlockingIOError:
                pass
            ready = asyncio.create_task(_readable(fd))
            gone = asyncio.create_task(self.gone.wait())
            await _first_of(ready, gone)
            if not ready.done() and not await _within(LAST_OUTPUT_SECONDS, ready):
                return b""
            ready.cancel()

    def _close_pipes(self):
        self._process.stdout.close()
        self._process.stderr.close()

    # -- input

    async def _feed(self):
        """The first input, and its end unless more is to come."""
        try:
            async with self._input_turn:
                await self._write(self._request.stdin)
                if not self._request.stdin_open:
                    self._close_stdin()
        except Failure:
            pass  # the program does not want it: that is no failure of the exec

    async def _write(self, data):
        view = memoryview(data)
        while view:
            if self._stdin is None or self.gone.is_set():
                raise Failure("failed_precondition", f"the input of {self.id} is closed")
            fd = self._stdin.fileno()
            try:
                written = os.write(fd, view)
            except BlockingIOError:
                ready = asyncio.create_task(_writable(fd))
                gone = asyncio.create_task(self.gone.wait())
                await _first_of(ready, gone)
                ready.cancel()
                continue
            except BrokenPipeError:
                self._close_stdin()
                continue
            self._taken += written
            view = view[written:]

    async def input(self, request):
        async with self._input_turn:
            if self._stdin is None or self.gone.is_set():
                raise Failure("failed_precondition", f"the input of {self.id} is closed")
            offset = request.offset if request.HasField("offset") else self._taken
            if offset > self._taken:
                raise Failure("out_of_range", f"{self._taken} bytes were taken")
            await self._write(request.input[self._taken - offset :])
            if request.close:
                self._close_stdin()
            return self._taken

    def _close_stdin(self):
        if self._stdin is not None:
            self._stdin.close()
            self._stdin = None


async def _first_of(wanted, other):
    """Waits for either; `other` is given up, and both if this wait is."""
    try:
        await asyncio.wait({wanted, other}, return_when="FIRST_COMPLETED")
    except asyncio.CancelledError:
        wanted.cancel()
        raise
    finally:
        other.cancel()


async def _within(seconds, task):
    """Whether the task is done in time; it is given up if not."""
    try:
        await asyncio.wait_for(task, seconds)
        return True
    except asyncio.TimeoutError:
        return False


# -- the methods


async def start(call, claim, request):
    _check_start(request)
    run = Run(call, claim, request, files.Place(claim, request.cwd).directory())
    if run.id in claim.execs:
        raise Failure("already_exists", f"exec {run.id} has been started already")
    _make_room(claim)
    claim.execs[run.id] = run
    await run.serve()


def _check_start(request):
    if bool(request.command) == bool(request.argv):
        raise Failure("invalid_argument", "either command or argv")
    if request.exec_id and not EXEC_ID.match(request.exec_id):
        raise Failure("invalid_argument", "no exec id")
    if request.retain_bytes > MAX_RETAIN:
        raise Failure("invalid_argument", "retain_bytes is beyond 16 MiB")
    if request.HasField("pty"):
        raise Failure("unimplemented", "this worker has no terminals")
    check_env(request.env)


def _make_room(claim):
    """Forgets the oldest exec that has ended, if there are many."""
    if len(claim.execs) < MAX_EXECS:
        return
    oldest = next((run for run in claim.execs.values() if run.gone.is_set()), None)
    if oldest is None:
        raise Failure("resource_exhausted", "too many programs")
    del claim.execs[oldest.id]


def _run_of(claim, exec_id):
    run = claim.execs.get(exec_id)
    if run is None:
        raise Failure("not_found", f"no exec {exec_id}")
    return run


async def feed(call, claim, request):
    if len(request.input) > MAX_INPUT:
        raise Failure("invalid_argument", "more than 256 KiB of input")
    return pb.ExecInputResponse(taken_bytes=await _run_of(claim, request.exec_id).input(request))


async def send_signal(call, claim, request):
    if request.signal not in SIGNALS:
        raise Failure("invalid_argument", f"no signal {request.signal}")
    _run_of(claim, request.exec_id).signal(getattr(signal, request.signal))
    return pb.ExecSignalResponse()
