"""Runs a program under a filter whose trapped calls fail for one kind of process and go on for others.

    refuse-for.py FILTER server|first|later PROGRAM [ARGUMENT...]

server is the program, and only where it writes to a pipe: its files, those of cgroup v2 among them, are
left alone. first is process 1 of a pid namespace beneath, from its clone on; later is any other process in
there. FILTER is a file of struct sock_filter whose trapped calls notify (seccomp_unotify(2)).
"""

import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}[platform.machine()]
SYS_PIDFD_GETFD = 438
# _IOWR('!', 0, struct seccomp_notif), _IOWR('!', 1, struct seccomp_notif_resp)
RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTIFICATION_BYTES = 80
# Where struct seccomp_notif has the first argument of the call.
FIRST_ARGUMENT = 32
CONTINUE = 1

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def check(result):
    if result < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return result


def confine(path, say, wait, command):
    """Installs the filter, has its listener taken, and becomes the program."""
    with open(path, "rb") as file:
        code = file.read()
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    flags = ctypes.c_ulong(SECCOMP_FILTER_FLAG_NEW_LISTENER)
    program = ctypes.byref(Program(len(code) // 8, code))
    listener = check(libc.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, flags, program))
    # More than one byte each: writing and reading one may be what is refused.
    os.write(say, b"%8d" % listener)
    os.read(wait, 8)
    os.execv(command[0], command)


def kind_of(pid):
    """Of a process that waits in a call."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        ids = next(line for line in file if line.startswith("NSpid:")).split()[1:]
    if len(ids) < 2:
        return "server"
    return "first" if ids[-1] == "1" else "later"


def is_pipe(pid, descriptor):
    return os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith("pipe:")


def answer(listener, kind):
    """Answers one notification; a process that is killed meanwhile needs none."""
    notification = bytearray(NOTIFICATION_BYTES)
    try:
        fcntl.ioctl(listener, RECEIVE, notification)
        cookie, pid = struct.unpack_from("=QI", notification)
        (descriptor,) = struct.unpack_from("=Q", notification, FIRST_ARGUMENT)
        is_refused = kind_of(pid) == kind and (kind != "server" or is_pipe(pid, descriptor))
        error, flags = (-errno.EPERM, 0) if is_refused else (0, CONTINUE)
        fcntl.ioctl(listener, SEND, bytearray(struct.pack("=QqiI", cookie, 0, error, flags)))
    except (FileNotFoundError, ProcessLookupError):
        pass


def main(path, kind, *command):
    heard, say = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        confine(path, say, wait, command)
    number = int(os.read(heard, 8))
    pidfd = os.pidfd_open(child)
    listener = check(libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0))
    os.write(go, b"%8d" % 0)
    poll = select.poll()
    for fd in (listener, pidfd):
        poll.register(fd, select.POLLIN)
    # Not until the listener hangs up: before Linux 6.11 a process is under it until it is reaped.
    while pidfd not in (ready := [fd for fd, _ in poll.poll()]):
        if listener in ready:
            answer(listener, kind)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
