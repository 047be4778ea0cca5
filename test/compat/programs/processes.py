"""Python's multiprocessing in earnest. Prints a line for each thing that worked."""

import concurrent.futures
import multiprocessing as mp
import multiprocessing.managers
import multiprocessing.shared_memory
import os
import signal
import sys
import threading
import time


def square(number):
    return number * number


def count_up(value, lock, times):
    for _ in range(times):
        with lock:
            value.value += 1


def pass_on(source, target):
    for item in iter(source.get, None):
        target.put(item * 2)
    target.put(None)


def gather(barrier, semaphore, peak, now):
    barrier.wait(30)
    with semaphore:
        with now.get_lock():
            now.value += 1
            peak.value = max(peak.value, now.value)
        time.sleep(0.01)
        with now.get_lock():
            now.value -= 1


def fill(name):
    memory = mp.shared_memory.SharedMemory(name)
    memory.buf[:] = bytes(range(256)) * (len(memory.buf) // 256)
    memory.close()


def run_all(workers):
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * len(workers)


def pools():
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(20), chunksize=5) == [n * n for n in range(20)]
            assert sorted(pool.imap_unordered(square, range(9))) == [n * n for n in range(9)]
            assert pool.apply_async(square, (12,)).get(30) == 144
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]


def queues():
    source, target = mp.Queue(8), mp.Queue()
    worker = mp.Process(target=pass_on, args=(source, target))
    worker.start()
    for item in range(100):
        source.put(item)
    source.put(None)
    assert list(iter(target.get, None)) == list(range(0, 200, 2))
    worker.join()
    here, there = mp.Pipe()
    child = mp.Process(target=there.send, args=(bytes(200_000),))
    child.start()
    assert len(here.recv()) == 200_000
    child.join()


def semaphores():
    value, lock = mp.Value("i", 0, lock=False), mp.RLock()
    run_all([mp.Process(target=count_up, args=(value, lock, 100)) for _ in range(4)])
    assert value.value == 400
    barrier, semaphore = mp.Barrier(4), mp.BoundedSemaphore(2)
    peak, now = mp.Value("i", 0), mp.Value("i", 0)
    run_all([mp.Process(target=gather, args=(barrier, semaphore, peak, now)) for _ in range(4)])
    assert 1 <= peak.value <= 2
    condition, event = mp.Condition(), mp.Event()
    waiter = mp.Process(target=event.wait, args=(30,))
    waiter.start()
    event.set()
    waiter.join()
    with condition:
        condition.notify_all()


def memory():
    block = mp.shared_memory.SharedMemory(create=True, size=1 << 20)
    run_all([mp.get_context("spawn").Process(target=fill, args=(block.name,))])
    assert block.buf[255] == 255 and block.buf[(1 << 20) - 1] == 255
    block.close()
    block.unlink()
    with mp.managers.SharedMemoryManager() as manager:
        numbers = manager.ShareableList([1, 2.5, "three"])
        assert list(numbers) == [1, 2.5, "three"]
    array = mp.Array("d", 1000)
    array[:] = [0.5] * 1000
    assert sum(array) == 500


def managers():
    with mp.Manager() as manager:
        shared, lock = manager.dict(), manager.Lock()
        run_all([mp.Process(target=shared.update, args=({n: n * n},)) for n in range(4)])
        with lock:
            assert dict(shared) == {n: n * n for n in range(4)}


def children():
    # A thread waits for a child that a signal ends; a zombie is reaped; an orphan is nobody's trouble.
    child = mp.Process(target=time.sleep, args=(300,))
    child.start()
    threading.Timer(0.05, os.kill, (child.pid, signal.SIGTERM)).start()
    child.join()
    assert child.exitcode == -signal.SIGTERM
    pidfd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(pidfd, 0)
    os.close(pidfd)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "exit(3)"], os.environ)
    assert os.waitid(os.P_PID, pid, os.WEXITED).si_status == 3


if __name__ == "__main__":
    for step in (pools, queues, semaphores, memory, managers, children):
        step()
        print(step.__name__, flush=True)
