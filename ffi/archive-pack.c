/*
 * archive-pack.c - PACK: writes a tree as an archive stream, with the rights of the program, which
 * may be at work in it. Regular files, directories and links; others are left out, and so is what
 * vanishes between its listing and its opening. A file that shrinks while it is read fails the
 * transfer, because its size is already sent.
 */
#include <stdbool.h>

#include "sys.h"
#include "text.h"
#include "transfer.h"

#define PACK_BUFFER  65536u
#define PACK_LISTING 4096u

/* A directory on the way down: the root of the tree, and CPRG_DEPTH_MAX components below it. */
struct pack_level {
    int fd;
    uint32_t path_length; /* of this directory's own path */
    long at;              /* in entries */
    long end;
    _Alignas(8) unsigned char entries[PACK_LISTING];
};

struct pack {
    struct transfer_result result;
    size_t filled;
    char path[CPRG_PATH_MAX];
    size_t path_length;
    uint32_t depth; /* levels in use */
};

static struct pack pack_state;
static struct pack_level pack_levels[CPRG_DEPTH_MAX + 1];
static unsigned char pack_buffer[PACK_BUFFER];

/* Skipped: not an error, and not an entry. */
#define PACK_SKIPPED 1

static int pack_failed(struct pack *pack, enum cprg_step step, int error) {
    if (error < 0 && pack->result.failure.err == 0) {
        pack->result.failure = step_of(step, (int32_t)pack->result.entries, error);
    }
    return error;
}

/*** Writing ***/

static int pack_flush(struct pack *pack) {
    size_t at = 0;
    while (at < pack->filled) {
        long written = sys_write(TRANSFER_STREAM_FD, pack_buffer + at, pack->filled - at);
        if (written == -K_EAGAIN) {
            struct kernel_pollfd writable = {TRANSFER_STREAM_FD, K_POLLOUT, 0};
            (void)sys_ppoll(&writable, 1, NULL);
        } else if (written > 0) {
            at += (size_t)written;
        } else if (written != -K_EINTR) {
            return pack_failed(pack, CPRG_STEP_STREAM, written == 0 ? -K_EIO : (int)written);
        }
    }
    pack->filled = 0;
    return 0;
}

static int pack_put(struct pack *pack, const void *bytes, size_t count) {
    if (count > PACK_BUFFER - pack->filled) {
        int result = pack_flush(pack);
        if (result < 0) {
            return result;
        }
    }
    memcpy(pack_buffer + pack->filled, bytes, count); /* a path at most: it fits */
    pack->filled += count;
    return 0;
}

static int pack_header(struct pack *pack, enum cprg_entry_type type, uint32_t mode, uint64_t size) {
    const struct cprg_entry entry = {
        .magic = CPRG_ENTRY_MAGIC,
        .type = (uint32_t)type,
        .mode = mode & 0777,
        .path_length = type == CPRG_ENTRY_END ? 0 : (uint32_t)pack->path_length,
        .size = size,
    };
    if (type != CPRG_ENTRY_END && pack->result.entries >= CPRG_ENTRIES_MAX) {
        return pack_failed(pack, CPRG_STEP_STREAM, -K_E2BIG);
    }
    int result = pack_put(pack, &entry, sizeof entry);
    return result < 0 ? result : pack_put(pack, pack->path, entry.path_length);
}

/*** Files and links ***/

static int pack_content(struct pack *pack, int fd, uint64_t size) {
    while (size > 0) {
        if (pack->filled == PACK_BUFFER) {
            int result = pack_flush(pack);
            if (result < 0) {
                return result;
            }
        }
        size_t room = PACK_BUFFER - pack->filled;
        long count = sys_read(fd, pack_buffer + pack->filled, size < room ? (size_t)size : room);
        if (count == -K_EINTR) {
            continue;
        }
        if (count <= 0) {
            return pack_failed(pack, CPRG_STEP_ENTRY, count == 0 ? -K_EIO : (int)count);
        }
        pack->filled += (size_t)count;
        pack->result.bytes += (uint64_t)count;
        size -= (uint64_t)count;
    }
    return 0;
}

static int pack_file(struct pack *pack, int dir, const char *name) {
    struct kernel_statx status = {0};
    int fd = sys_openat(dir, name, K_O_RDONLY | K_O_NOFOLLOW | K_O_NONBLOCK | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return fd == -K_ENOENT || fd == -K_ELOOP ? PACK_SKIPPED
                                                 : pack_failed(pack, CPRG_STEP_ENTRY, fd);
    }
    int result = pack_failed(pack, CPRG_STEP_ENTRY, sys_fstat(fd, &status));
    if (result >= 0 && (status.mode & K_S_IFMT) != K_S_IFREG) {
        result = PACK_SKIPPED; /* it was one when it was looked at */
    }
    if (result == 0) {
        result = pack_header(pack, CPRG_ENTRY_FILE, status.mode, status.size);
    }
    if (result == 0) {
        result = pack_content(pack, fd, status.size);
    }
    (void)sys_close(fd);
    return result;
}

static int pack_link(struct pack *pack, int dir, const char *name) {
    static char content[CPRG_PATH_MAX];
    long length = sys_readlinkat(dir, name, content, sizeof content);
    if (length == -K_ENOENT || length == -K_EINVAL) {
        return PACK_SKIPPED; /* gone, or no link any more */
    }
    if (length < 0 || length >= (long)sizeof content) {
        return pack_failed(pack, CPRG_STEP_ENTRY, length < 0 ? (int)length : -K_ENAMETOOLONG);
    }
    int result = pack_header(pack, CPRG_ENTRY_LINK, 0777, (uint64_t)length);
    pack->result.bytes += (uint64_t)length;
    return result < 0 ? result : pack_put(pack, content, (size_t)length);
}

/*** Directories ***/

/* Opens the directory as the next level and writes its entry. */
static int pack_enter(struct pack *pack, int dir, const char *name) {
    struct kernel_statx status = {0};
    if (pack->depth > CPRG_DEPTH_MAX) {
        return pack_failed(pack, CPRG_STEP_STREAM, -K_E2BIG);
    }
    int fd = sys_openat(dir, name, K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
    if (fd < 0) {
        bool changed = fd == -K_ENOENT || fd == -K_ENOTDIR || fd == -K_ELOOP;
        return changed ? PACK_SKIPPED : pack_failed(pack, CPRG_STEP_ENTRY, fd);
    }
    int result = pack_failed(pack, CPRG_STEP_ENTRY, sys_fstat(fd, &status));
    if (result >= 0) {
        result = pack_header(pack, CPRG_ENTRY_DIRECTORY, status.mode, 0);
    }
    if (result < 0) {
        (void)sys_close(fd);
        return result;
    }
    struct pack_level *level = &pack_levels[pack->depth++];
    level->fd = fd;
    level->path_length = (uint32_t)pack->path_length;
    level->at = 0;
    level->end = 0;
    return 0;
}

/* One name in a directory, or the tree's own root: what it is decides, and is checked again once
   it is open. A device or fifo is never opened: that alone can have effects. */
static int pack_name(struct pack *pack, int dir, const char *name) {
    struct kernel_statx status = {0};
    int result = sys_statx(dir, name, K_AT_SYMLINK_NOFOLLOW, &status);
    if (result < 0) {
        return result == -K_ENOENT ? PACK_SKIPPED : pack_failed(pack, CPRG_STEP_ENTRY, result);
    }
    switch (status.mode & K_S_IFMT) {
    case K_S_IFREG:
        result = pack_file(pack, dir, name);
        break;
    case K_S_IFLNK:
        result = pack_link(pack, dir, name);
        break;
    case K_S_IFDIR:
        result = pack_enter(pack, dir, name);
        break;
    default:
        result = PACK_SKIPPED;
        break;
    }
    if (result == 0) {
        pack->result.entries++;
    }
    return result;
}

/* Puts the path of a name in the given directory into pack->path. */
static int pack_set_path(struct pack *pack, const struct pack_level *level, const char *name) {
    size_t at = level->path_length;
    pack->path[at] = '\0';
    if (at > 0) {
        at = text_append(pack->path, sizeof pack->path, at, "/");
    }
    pack->path_length = at == 0 && level->path_length > 0
                            ? 0
                            : text_append(pack->path, sizeof pack->path, at, name);
    return pack->path_length == 0 ? pack_failed(pack, CPRG_STEP_ENTRY, -K_ENAMETOOLONG) : 0;
}

/* The next name of the deepest directory, or the way up at its end. */
static int pack_advance(struct pack *pack) {
    struct pack_level *level = &pack_levels[pack->depth - 1];
    if (level->at >= level->end) {
        level->end = sys_getdents64(level->fd, level->entries, sizeof level->entries);
        level->at = 0;
        if (level->end <= 0) {
            (void)sys_close(level->fd);
            pack->depth--;
            return pack_failed(pack, CPRG_STEP_ENTRY, (int)level->end);
        }
    }
    const struct kernel_dirent *entry = (const void *)(level->entries + level->at);
    level->at += entry->reclen;
    if (text_equal(entry->name, ".") || text_equal(entry->name, "..")) {
        return 0;
    }
    int result = pack_set_path(pack, level, entry->name);
    return result < 0 ? result : pack_name(pack, level->fd, entry->name);
}

struct transfer_result archive_pack(const char *path) {
    struct pack *pack = &pack_state;
    int result = pack_name(pack, K_AT_FDCWD, path);
    if (result == PACK_SKIPPED) { /* the path itself is missing, or nothing that can be sent */
        struct kernel_statx status = {0};
        int missing = sys_statx(K_AT_FDCWD, path, K_AT_SYMLINK_NOFOLLOW, &status);
        result = pack_failed(pack, CPRG_STEP_ENTRY, missing < 0 ? missing : -K_EOPNOTSUPP);
    }
    while (result >= 0 && pack->depth > 0) {
        result = pack_advance(pack);
    }
    if (result >= 0) {
        result = pack_header(pack, CPRG_ENTRY_END, 0, 0);
    }
    if (result >= 0) {
        (void)pack_flush(pack);
    }
    return pack->result;
}
