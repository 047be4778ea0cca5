#!/usr/bin/python3
# Runs the reference worker against the control plane stub, over loopback, and exits 0 or 1.
#
# The cases, one file for each part of PROTOCOL.md, say what a worker has to do as steps of the stub.
# They wait for events only, never for time to pass; every wait is bounded. `selftest.py NAME...` runs
# some cases only. WORKER="command" tests another worker that takes the same options; the cases of
# selftest_inside.py are not of a worker.

import asyncio
import importlib
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True

from selftest_base import CASES  # noqa: E402

PARTS = ("connect", "claims", "programs", "files", "frames", "inside")
CASE_SECONDS = int(os.environ.get("CASE_SECONDS", "60"))

for part in PARTS:
    importlib.import_module(f"selftest_{part}")


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
