# Files: the unary methods fs.* and what all methods on files share (section 9).
#
# Owns the rules for paths, the codes of failures, and staging: new content is written into the
# staging folder of the claim, which is on the same file system, and then renamed into its place.
# The checks of paths are of the moment: a program of the claim itself could race them, which a
# worker that guards against its own programs has to rule out with openat2 or the like.

import asyncio
import errno
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager

from peer import to_the_end
from wire import KIB, Failure, pb

MAX_PATH = 4095
MAX_WRITE = 3 * KIB * KIB
MAX_ENTRIES = 10_000
MAX_LISTING = 3 * KIB * KIB  # bytes of one answer
MODE_BITS = 0o777

CODES = {
    errno.ENOENT: ("not_found", ""),
    errno.EEXIST: ("already_exists", ""),
    errno.ENOTDIR: ("failed_precondition", ""),
    errno.EISDIR: ("failed_precondition", ""),
    errno.ENOTEMPTY: ("failed_precondition", ""),
    errno.ELOOP: ("failed_precondition", "IS_LINK"),
    errno.EACCES: ("permission_denied", ""),
    errno.EPERM: ("permission_denied", ""),
    errno.EROFS: ("permission_denied", ""),
    errno.ENOSPC: ("resource_exhausted", "DISK_FULL"),
    errno.EDQUOT: ("resource_exhausted", "DISK_FULL"),
    errno.EXDEV: ("failed_precondition", ""),
    errno.EINVAL: ("invalid_argument", ""),
    errno.ENAMETOOLONG: ("invalid_argument", ""),
}


@contextmanager
def failures_of(path):
    """Turns what the system says about a path into an answer."""
    try:
        yield
    except OSError as error:
        code, reason = CODES.get(error.errno, ("internal", ""))
        raise Failure(code, f"{path}: {error.strerror or error}", reason) from error


async def blocking(function, *args):
    """Runs it in a thread, and to its end even if the call is cancelled: a thread cannot be."""
    return await to_the_end(asyncio.create_task(asyncio.to_thread(function, *args)))


class Place:
    """A path of a request, made absolute; its folder has no links left in it."""

    def __init__(self, claim, path, link=False):
        if "\0" in path or len(path.encode()) > MAX_PATH:
            raise Failure("invalid_argument", "no path")
        self.given = path
        self.roots = (claim.root, claim.home)
        whole = os.path.join(claim.root, path).rstrip("/") or "/"
        folder, name = os.path.split(whole)
        if name in ("", ".", ".."):
            self.path = os.path.realpath(whole)
        else:
            self.path = os.path.join(os.path.realpath(folder), name)
        self._check(link)

    def _check(self, link):
        if not any(is_beneath(self.path, root) for root in self.roots):
            raise Failure("permission_denied", f"{self.given} leads out", "PATH_ESCAPES")
        if not link and os.path.islink(self.path):
            raise Failure("failed_precondition", f"{self.given} is a link", "IS_LINK")

    def directory(self):
        with failures_of(self.given):
            if not stat.S_ISDIR(os.stat(self.path).st_mode):
                raise Failure("failed_precondition", f"{self.given} is not a directory")
        return self.path

    def not_a_root(self):
        if self.path in self.roots:
            raise Failure("failed_precondition", f"{self.given} is the root or the home")

    def make_parents(self, parents):
        if parents:
            try:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            except FileExistsError:
                raise Failure("failed_precondition", f"{self.given}: not a directory") from None


def is_beneath(path, root):
    return path == root or path.startswith(root + "/")


@contextmanager
def staging(claim):
    """A folder of its own, gone afterwards whatever happens."""
    folder = tempfile.mkdtemp(prefix="staged-", dir=claim.folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def type_of(mode):
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def describe(path):
    found = os.lstat(path)
    kind = type_of(found.st_mode)
    return pb.FileStat(
        name=os.path.basename(path),
        type=kind,
        size=found.st_size,
        mode=found.st_mode & MODE_BITS,
        modified_ms=found.st_mtime_ns // 1_000_000,
        link_target=os.readlink(path) if kind == "link" else "",
    )


def open_file(path, given):
    """Opens a regular file for reading, and nothing else."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise Failure("failed_precondition", f"{given} is not a file")
    return file


def replace_file(staged, place, mode):
    """Puts a staged file into its place; keeps the mode of what was there if none is given."""
    try:
        there = os.lstat(place.path)
    except FileNotFoundError:
        there = None
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise Failure("failed_precondition", f"{place.given} is not a file")
    if mode is None:
        mode = there.st_mode if there is not None else 0o644
    os.chmod(staged, mode & MODE_BITS)
    os.rename(staged, place.path)


# -- the methods; each runs in a thread


def read_file(claim, request, max_bytes):
    place = Place(claim, request.path)
    with failures_of(request.path), open_file(place.path, request.path) as file:
        found = os.fstat(file.fileno())
        length = max(0, found.st_size - request.offset)
        if request.length:
            length = min(length, request.length)
        if length > max_bytes:
            raise Failure("out_of_range", f"{length} bytes of {request.path}", "TOO_LARGE")
        content = os.pread(file.fileno(), length, request.offset) if length else b""
        return pb.FsReadFileResponse(
            content=content, size=found.st_size, mode=found.st_mode & MODE_BITS
        )


def write_file(claim, request):
    if len(request.content) > MAX_WRITE:
        raise Failure("invalid_argument", "more than 3 MiB")
    place = Place(claim, request.path)
    with failures_of(request.path), staging(claim) as folder:
        staged = os.path.join(folder, "file")
        with open(staged, "wb") as file:
            file.write(request.content)
        place.make_parents(request.parents)
        replace_file(staged, place, request.mode if request.HasField("mode") else None)
    return pb.FsWriteFileResponse()


def stat_path(claim, request):
    place = Place(claim, request.path, link=True)
    with failures_of(request.path):
        return pb.FsStatResponse(stat=describe(place.path))


def list_dir(claim, request):
    place = Place(claim, request.path)
    limit = min(request.limit or MAX_ENTRIES, MAX_ENTRIES)
    response = pb.FsListDirResponse()
    size = 0
    with failures_of(request.path):
        after = request.after.encode()
        # Names that are no UTF-8 cannot be said in a message.
        for name in sorted(os.listdir(os.fsencode(place.path))):
            if name <= after or not _is_utf8(name):
                continue
            try:
                entry = describe(os.path.join(place.path, name.decode()))
            except FileNotFoundError:
                continue
            size += entry.ByteSize() + 8
            if len(response.entries) >= limit or size > MAX_LISTING:
                response.more = True
                break
            response.entries.append(entry)
    return response


def _is_utf8(name):
    try:
        return bool(name.decode())
    except UnicodeDecodeError:
        return False


def make_dir(claim, request):
    place = Place(claim, request.path)
    mode = request.mode & MODE_BITS if request.HasField("mode") else 0o755
    with failures_of(request.path):
        place.make_parents(request.parents)
        try:
            os.mkdir(place.path)
        except FileExistsError:
            if not request.parents or not os.path.isdir(place.path):
                raise
        else:
            os.chmod(place.path, mode)
    return pb.FsMakeDirResponse()


def remove(claim, request):
    place = Place(claim, request.path, link=True)
    place.not_a_root()
    with failures_of(request.path):
        try:
            is_directory = stat.S_ISDIR(os.lstat(place.path).st_mode)
        except FileNotFoundError:
            return pb.FsRemoveResponse(existed=False)
        if not is_directory:
            os.unlink(place.path)
        elif request.recursive:
            shutil.rmtree(place.path)
        else:
            os.rmdir(place.path)
    return pb.FsRemoveResponse(existed=True)


def rename(claim, request):
    source = Place(claim, getattr(request, "from"), link=True)
    target = Place(claim, request.to, link=True)
    source.not_a_root()
    target.not_a_root()
    with failures_of(f"{source.given} to {target.given}"):
        is_directory = stat.S_ISDIR(os.lstat(source.path).st_mode)
        # A file gives way to a file; nothing else gives way.
        if os.path.lexists(target.path):
            if is_directory or stat.S_ISDIR(os.lstat(target.path).st_mode):
                raise Failure("already_exists", f"{target.given} is in the way")
        os.rename(source.path, target.path)
    return pb.FsRenameResponse()


def methods(max_read_bytes):
    """The unary methods: name -> (class of the request, coroutine function of the handler)."""

    def served(function, *more):
        async def serve(_call, claim, request):
            return await blocking(function, claim, request, *more)

        return serve

    return {
        "fs.ReadFile": (pb.FsReadFileRequest, served(read_file, max_read_bytes)),
        "fs.WriteFile": (pb.FsWriteFileRequest, served(write_file)),
        "fs.Stat": (pb.FsStatRequest, served(stat_path)),
        "fs.ListDir": (pb.FsListDirRequest, served(list_dir)),
        "fs.MakeDir": (pb.FsMakeDirRequest, served(make_dir)),
        "fs.Remove": (pb.FsRemoveRequest, served(remove)),
        "fs.Rename": (pb.FsRenameRequest, served(rename)),
    }
