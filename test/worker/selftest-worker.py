#!/usr/bin/python3
# `cprg worker` behind the options of the reference worker, for WORKER=… of test/interop/selftest.py:
#   selftest-worker.py PROGRAM… -- OPTIONS… URL
# Owns only the translation; it becomes the worker, so that signals and exit code are the worker's.

import argparse
import os
import sys
import tempfile
from urllib.parse import urlsplit

SAME = ("token", "name", "slots", "max_read_bytes", "attempts")
SWITCHES = ("once", "plain")
RENAMED = {"ca": "tls-ca", "cert": "tls-cert", "key": "tls-key"}


def parse(words):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--state", "--id", "--delay-scale", *(f"--{name.replace('_', '-')}" for name in SAME)):
        parser.add_argument(name)
    for name in RENAMED:
        parser.add_argument(f"--{name}")
    parser.add_argument("--label", action="append", default=[])
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("url")
    return parser.parse_args(words)


def state_folder(top, given):
    """The names of the reference worker's files, as links to those of `cprg worker`."""
    folder = given.state or os.path.join(top, "state")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    secret = os.path.join(folder, "secret")
    if not os.path.lexists(secret):
        os.symlink("worker-secret", secret)
    if given.id:
        path = os.path.join(folder, "worker-id")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(f"{given.id}\n")
    return folder


def main(words):
    split = words.index("--")
    program, given = words[:split], parse(words[split + 1 :])
    top = tempfile.mkdtemp(prefix="cprg-selftest-")
    os.chmod(top, 0o711)
    url = urlsplit(given.url)
    argv = [*program, "worker", f"--connect={url.netloc}", f"--state-dir={state_folder(top, given)}"]
    for name in SAME:
        value = getattr(given, name)
        if value is not None:
            argv.append(f"--{name.replace('_', '-')}={value}")
    for name, flag in RENAMED.items():
        if getattr(given, name):
            argv.append(f"--{flag}={getattr(given, name)}")
    argv += [f"--label={label}" for label in given.label]
    argv += [f"--{name}" for name in SWITCHES if getattr(given, name)]
    # Without a sandbox there is one slot: the claims would see each other.
    if int(given.slots or 1) == 1:
        argv.append(f"--root={os.path.join(top, 'root')}")
    own = {"HOME": top, "TMPDIR": top, "CPRG_DATA_DIR": os.path.join(top, "data")}
    own["CPRG_RUN_DIR"] = os.path.join(top, "run")
    os.execve(argv[0], argv, {**os.environ, **own})


main(sys.argv[1:])
