"""Runs a program under an outer filter, as a container engine would.

    under-outer.py FILTER [--listen] PROGRAM [ARGUMENT...]

FILTER is a file of struct sock_filter. With --listen the filter has a listener, as one of a
container engine with notification has: the kernel then refuses another one (EBUSY).
"""

import ctypes
import os
import platform
import sys

PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}[platform.machine()]


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def main(path, *command):
    listens = command[0] == "--listen"
    if listens:
        command = command[1:]
    with open(path, "rb") as file:
        code = file.read()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("prctl failed")
    flags = SECCOMP_FILTER_FLAG_NEW_LISTENER if listens else 0
    program = Program(len(code) // 8, code)
    listener = libc.syscall(
        SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, ctypes.c_ulong(flags), ctypes.byref(program)
    )
    if listener < 0:
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    if listens:
        # A listener that nobody holds any more is none.
        os.set_inheritable(listener, True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
