# Transfers: fs.Upload and fs.Download, of files, links and whole directories (section 9).
#
# Owns the archives. A directory is spooled as one tar file in the staging folder of the claim, both
# ways: that costs the space twice, and makes "all of it or nothing" plain to see.

import os
import stat
import tarfile
from contextlib import aclosing

from files import (
    MODE_BITS, Place, blocking, failures_of, is_beneath, open_file, replace_file, staging, type_of,
)  # fmt: skip
from wire import KIB, Failure, pb

CHUNK = 256 * KIB - 64  # of a download, and the most that an upload may bring
TAR_END = bytes(1024)


def bad_archive(message):
    return Failure("invalid_argument", message, "BAD_ARCHIVE")


# -- download


async def download(call, claim, request):
    place = Place(claim, request.path, link=True)
    with failures_of(request.path):
        mode = os.lstat(place.path).st_mode
        head = pb.TransferHead(type=type_of(mode), mode=mode & MODE_BITS)
        if head.type == "link":
            head.link_target = os.readlink(place.path)
            await call.send(pb.FsDownloadItem(head=head))
        elif head.type == "file":
            with open_file(place.path, request.path) as file:
                head.size = os.fstat(file.fileno()).st_size
                await _send_all(call, head, file, head.size)
        elif head.type == "directory":
            with staging(claim) as folder:
                archive = os.path.join(folder, "archive")
                await blocking(_pack, place.path, archive)
                with open(archive, "rb") as file:
                    await _send_all(call, head, file, os.path.getsize(archive))
        else:
            raise Failure("failed_precondition", f"{request.path} cannot be transferred")


async def _send_all(call, head, file, size):
    await call.send(pb.FsDownloadItem(head=head))
    while size > 0:
        chunk = file.read(min(CHUNK, size))
        if not chunk:
            raise Failure("aborted", "the file shrank while it was read")
        size -= len(chunk)
        await call.send(pb.FsDownloadItem(chunk=chunk))


def _pack(folder, archive):
    with tarfile.open(archive, "w:", format=tarfile.PAX_FORMAT) as tar:
        _pack_below(tar, folder, "")


def _pack_below(tar, folder, prefix):
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = prefix + entry.name
        tar.inodes.clear()  # else a second name of a file becomes a hard link
        info = tar.gettarinfo(entry.path, name)
        if info is None or not (info.isreg() or info.isdir() or info.issym()):
            continue
        info.mode &= MODE_BITS
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        if info.isreg():
            with open_file(entry.path, name) as file:
                tar.addfile(info, file)
        else:
            tar.addfile(info)
        if info.isdir():
            _pack_below(tar, entry.path, name + "/")


# -- upload


async def upload(call, table):
    async with aclosing(call.items()) as items:
        first = await anext(items, None)
        if first is None or first.WhichOneof("item") != "head":
            raise Failure("invalid_argument", "an upload begins with its head")
        claim = table.of(first.claim if first.HasField("claim") else None)
        claim.calls.add(call)
        try:
            return await _receive(items, claim, first.head)
        finally:
            claim.calls.discard(call)


async def _receive(items, claim, head):
    place = Place(claim, head.path)
    kind = head.transfer.type
    if kind not in ("file", "directory", "link"):
        raise Failure("invalid_argument", f"no type of a transfer: {kind!r}")
    with failures_of(head.path), staging(claim) as folder:
        staged = os.path.join(folder, "content")
        limit = {"file": head.transfer.size, "link": 0}.get(kind)
        size = await _spool(items, staged, limit)
        if limit is not None and size != limit:
            raise Failure("invalid_argument", f"{size} bytes came, {limit} were announced")
        return await blocking(_put, kind, folder, staged, place, head)


async def _spool(items, staged, limit):
    size = 0
    with open(staged, "wb") as file:
        async for item in items:
            if item.WhichOneof("item") != "chunk" or not 0 < len(item.chunk) <= CHUNK:
                raise Failure("invalid_argument", "an item that is no chunk")
            size += len(item.chunk)
            if limit is not None and size > limit:
                raise Failure("invalid_argument", f"more than the {limit} bytes announced")
            file.write(item.chunk)
    return size


def _put(kind, folder, staged, place, head):
    mode = 0o755 if kind == "directory" else 0o644
    if head.transfer.HasField("mode"):
        mode = head.transfer.mode & MODE_BITS
    if kind == "directory":
        tree = os.path.join(folder, "tree")
        size, entries = _unpack(staged, tree)
        os.chmod(tree, mode)
        place.make_parents(head.parents)
        _place_tree(tree, os.path.join(folder, "old"), place, head.merge)
        return pb.FsUploadResponse(bytes=size, entries=entries)
    place.make_parents(head.parents)
    if kind == "file":
        size = os.path.getsize(staged)
        replace_file(staged, place, mode)
        return pb.FsUploadResponse(bytes=size, entries=1)
    link = os.path.join(folder, "link")
    os.symlink(head.transfer.link_target, link)
    if os.path.isdir(place.path):
        raise Failure("failed_precondition", f"{place.given} is a directory")
    os.rename(link, place.path)
    return pb.FsUploadResponse(entries=1)


def _unpack(archive, tree):
    """Unpacks an archive into a new folder; gives the bytes of its files and its entries."""
    _check_end(archive)
    os.mkdir(tree)
    size = entries = 0
    modes = []  # of folders: set last, as one may forbid to write into it
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                path = _path_in(tree, member.name)
                if path == tree and member.isdir():
                    continue  # the folder itself: its mode is in the head
                size += _unpack_one(tar, member, path)
                entries += 1
                if member.isdir():
                    modes.append((path, member.mode & MODE_BITS))
    except tarfile.TarError as error:
        raise bad_archive(str(error)) from error
    for path, mode in reversed(modes):
        os.chmod(path, mode)
    return size, entries


def _check_end(archive):
    with open(archive, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(TAR_END)))
        if file.read() != TAR_END:
            raise bad_archive("the archive has no end")


def _path_in(tree, name):
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise bad_archive(f"{name} leads out")
    path = os.path.normpath(os.path.join(tree, name))
    if not is_beneath(os.path.realpath(os.path.dirname(path)), tree) and path != tree:
        raise bad_archive(f"{name} leads out through a link")
    return path


def _unpack_one(tar, member, path):
    """Makes one entry and gives the bytes of its content. A later one replaces an earlier one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if member.isdir():
        os.makedirs(path, exist_ok=True)
        return 0
    if os.path.lexists(path):
        os.unlink(path)
    if member.issym():
        os.symlink(member.linkname, path)
        return 0
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise bad_archive(f"{member.name} is neither file, directory nor link")
    source = tar.extractfile(member)
    with open(path, "xb") as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)
    os.chmod(path, member.mode & MODE_BITS)
    return member.size


def _place_tree(tree, old, place, merge):
    if not os.path.lexists(place.path):
        os.rename(tree, place.path)
    elif not os.path.isdir(place.path):
        raise Failure("already_exists", f"{place.given} is in the way")
    elif merge:
        _check_merge(tree, place.path)
        _merge(tree, place.path)
    else:
        place.not_a_root()
        os.rename(place.path, old)
        os.rename(tree, place.path)


def _is_real_dir(path):
    return os.path.lexists(path) and stat.S_ISDIR(os.lstat(path).st_mode)


def _check_merge(tree, target):
    """Before anything is moved: a folder meets a folder, anything else does not."""
    for name in os.listdir(tree):
        new, there = os.path.join(tree, name), os.path.join(target, name)
        if not os.path.lexists(there):
            continue
        if _is_real_dir(new) != _is_real_dir(there):
            raise Failure("already_exists", f"{name} is in the way")
        if _is_real_dir(new):
            _check_merge(new, there)


def _merge(tree, target):
    for name in os.listdir(tree):
        new, there = os.path.join(tree, name), os.path.join(target, name)
        if _is_real_dir(new) and os.path.lexists(there):
            _merge(new, there)
            os.chmod(there, os.lstat(new).st_mode & MODE_BITS)
        else:
            os.rename(new, there)
