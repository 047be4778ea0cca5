"""Runs modules of CPython's regression tests one after the other, each in a process of its own.

    run-modules.py SECONDS_EACH SECONDS_ALL MODULE...

Prints one line of JSON when a module starts, and one when it has ended: what failed, what was left
out, how many tests ran. After SECONDS_ALL no further module is started. The caller takes those that
have no line for not run, and one that has started and not ended for the one that ended it all.
"""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time

# What libregrtest says at the end of one module, and what it is called here.
ENDINGS = {
    "OK": "passed",
    "skipped": "skipped",
    "omitted": "skipped",
    "failed": "failed",
    "run no tests": "skipped",
    "altered the execution environment": "passed",
}
TEXT_MOST = 3000


def main(seconds_each, seconds_all, modules):
    stop_at = time.monotonic() + seconds_all
    for module in modules:
        if time.monotonic() > stop_at:
            break
        print(json.dumps({"module": module}), flush=True)
        print(json.dumps(run(module, seconds_each)), flush=True)


def run(module, seconds):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        record = os.path.join(directory, "record")
        started = time.monotonic()
        with open(os.path.join(directory, "output"), "w+b") as output:
            command = [sys.executable, __file__, "--module", module, record]
            child = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, "TMPDIR": directory},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = child.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finish(child)
            output.seek(0)
            text = output.read().decode(errors="replace")
        tests = read(record)
    return {
        "module": module,
        "ending": "hung" if code is None else ending(text, code),
        "seconds": round(time.monotonic() - started, 1),
        "text": "" if code == 0 else text[-TEXT_MOST:],
        **tests,
    }


def finish(child):
    """Ends what the module has left in its session's first process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def ending(text, code):
    said = re.search(r"^1 test (OK|skipped|omitted|failed|run no tests|altered the .*?)\b[.:]", text, re.M)
    return ENDINGS[said[1]] if said else f"crashed ({code})"


def read(path):
    tests = {"count": 0, "failed": [], "skipped": []}
    if not os.path.exists(path):
        return tests
    with open(path) as lines:
        for line in lines:
            what, _, name = line.rstrip("\n").partition(" ")
            if what == "started":
                tests["count"] += 1
            elif name not in tests[what]:
                tests[what].append(name)
    return tests


def run_one(module, record):
    """This process: hands the module to libregrtest, and notes what becomes of each test."""
    from test.support import testresult

    owner = os.getpid()
    notes = open(record, "w", buffering=1)

    def note(what, test):
        # A test may fork and go on in the child.
        if os.getpid() == owner:
            name = test.id().replace("\n", " ") if hasattr(test, "id") else str(test)
            notes.write(f"{what} {name}\n")

    class Noting(testresult.RegressionTestResult):
        def startTest(self, test):
            note("started", test)
            super().startTest(test)

        def addError(self, test, err):
            note("failed", test)
            super().addError(test, err)

        def addFailure(self, test, err):
            note("failed", test)
            super().addFailure(test, err)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                note("failed", test)
            super().addSubTest(test, subtest, err)

        def addSkip(self, test, reason):
            note("skipped", test)
            super().addSkip(test, reason)

    testresult.RegressionTestResult = Noting
    # As `python3 -m test MODULE` would.
    sys.path[0] = os.getcwd()
    sys.argv[1:] = [module]
    runpy.run_module("test", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1] == "--module":
        run_one(*sys.argv[2:])
    else:
        main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
