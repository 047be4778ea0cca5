"""What ordinary Python programs do. Prints one line for each thing that worked."""

import asyncio
import concurrent.futures
import fcntl
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import resource
import select
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import threading
import time


def square(number):
    return number * number


def put(queue, lock, value):
    with lock:
        value.value += 1
    queue.put(os.getpid() != os.getppid())


def threads():
    found = []
    workers = [threading.Thread(target=found.append, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found) == list(range(8))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16]


def processes():
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue, lock, value = context.Queue(), context.Lock(), context.Value("i", 0)
        child = context.Process(target=put, args=(queue, lock, value))
        child.start()
        assert queue.get() is True
        child.join()
        assert child.exitcode == 0 and value.value == 1
    with multiprocessing.Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 7
    assert memory.buf[0] == 7
    memory.close()
    memory.unlink()


def programs():
    run = subprocess.run(["cat"], input=b"x" * 100_000, stdout=subprocess.PIPE, check=True)
    assert len(run.stdout) == 100_000
    assert subprocess.run("exit 3", shell=True).returncode == 3
    assert subprocess.run(["true"], start_new_session=True, preexec_fn=os.getpid).returncode == 0
    pid = os.fork()
    if pid == 0:
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4


async def loop():
    child = await asyncio.create_subprocess_exec("echo", "hi", stdout=subprocess.PIPE)
    out, _ = await child.communicate()
    assert out == b"hi\n"
    path = os.path.join(tempfile.mkdtemp(), "socket")

    async def serve(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"ping\n")
    assert await reader.readline() == b"ping\n"
    writer.close()
    server.close()
    assert await asyncio.to_thread(square, 3) == 9
    await asyncio.wait_for(asyncio.sleep(0.01), 5)


def files():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        with open(path, "w+b") as file:
            file.write(b"a" * 8192)
            file.flush()
            os.fsync(file.fileno())
            fcntl.flock(file, fcntl.LOCK_EX)
            with mmap.mmap(file.fileno(), 0) as view:
                assert view[4096] == ord("a")
        os.mkfifo(os.path.join(directory, "fifo"))
        os.symlink("file", os.path.join(directory, "link"))
        os.chmod(path, 0o600)
        os.utime(path, (1, 1))
        os.rename(path, path + "2")
        with open(path + "2", "rb") as source, open(path, "wb") as target:
            assert os.sendfile(target.fileno(), source.fileno(), 0, 8192) == 8192
        assert sorted(os.listdir(directory)) == ["fifo", "file", "file2", "link"]
        base = sqlite3.connect(os.path.join(directory, "db"))
        base.execute("pragma journal_mode=wal")
        base.execute("create table t (n)")
        base.executemany("insert into t values (?)", [(i,) for i in range(100)])
        base.commit()
        assert base.execute("select sum(n) from t").fetchone() == (4950,)
        base.close()
    os.sync()


def signals():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.signal(signal.SIGALRM, lambda *_: seen.append(2))
    while len(seen) < 2:
        time.sleep(0.005)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    assert signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2


def sockets():
    left, right = socket.socketpair()
    left.sendall(b"x")
    poll = select.epoll()
    poll.register(right, select.EPOLLIN)
    assert poll.poll(5) != []
    socket.send_fds(left, [b"y"], [0])
    assert right.recv(1) == b"x"
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_VSOCK):
        try:
            socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            assert error.errno == 97, error
        else:
            raise AssertionError(family)
    try:
        socket.getaddrinfo("localhost", 80)
    except OSError:
        pass


def limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    assert os.sched_getaffinity(0)
    assert os.getloadavg() and os.cpu_count()
    assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED
    assert os.memfd_create("x") > 2
    assert os.getrandom(8) and os.pidfd_open(os.getpid()) > 2


if __name__ == "__main__":
    for step in (threads, processes, programs, loop, files, signals, sockets, limits):
        asyncio.run(step()) if step is loop else step()
        print(step.__name__, flush=True)
