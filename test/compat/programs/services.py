"""asyncio, its programs and unix sockets; sqlite3 with several writers. A line for each that worked."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading


async def programs():
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"import sys; print(len(sys.stdin.read())); sys.exit({n})",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for n in range(4)
    ]
    answers = await asyncio.gather(*(child.communicate(b"x" * 300_000) for child in children))
    assert [out.split() for out, _ in answers] == [[b"300000"]] * 4
    assert [child.returncode for child in children] == [0, 1, 2, 3]
    shell = await asyncio.create_subprocess_shell("sleep 300")
    shell.terminate()
    assert await shell.wait() == -15


async def sockets():
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def ask(number):
        reader, writer = await asyncio.open_unix_connection("service")
        for _ in range(20):
            writer.write(b"line %d\n" % number)
            assert await reader.readline() == b"LINE %d\n" % number
        writer.close()

    async with await asyncio.start_unix_server(serve, "service"):
        await asyncio.gather(*(ask(number) for number in range(10)))
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    reader, writer = os.pipe()
    loop.add_reader(reader, changed.set)
    await loop.run_in_executor(None, os.write, writer, b"x")
    await asyncio.wait_for(changed.wait(), 30)
    loop.remove_reader(reader)


def databases():
    def write(start):
        own = sqlite3.connect("base", timeout=60)
        for number in range(start, start + 25):
            with own:
                own.execute("insert into t values (?)", (number,))
        own.close()

    base = sqlite3.connect("base")
    for mode in ("delete", "wal"):
        base.execute(f"pragma journal_mode={mode}")
        base.execute("create table t (n)")
        writers = [threading.Thread(target=write, args=(n * 25,)) for n in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert base.execute("select count(*), sum(n) from t").fetchone() == (100, 4950)
        base.execute("drop table t")
    base.execute("vacuum")
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    base.close()


asyncio.run(programs())
print("programs", flush=True)
asyncio.run(sockets())
print("sockets", flush=True)
databases()
print("databases")
