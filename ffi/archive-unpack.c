/*
 * archive-unpack.c - UNPACK: reads an archive stream and makes what it describes, with the rights
 * of the program. The program may run at the same time and move things about, so no link beneath
 * the destination is followed, and nothing half-made is seen under its final name.
 *
 * Replacing (the default): everything is made beside the destination under a staging name and
 * renamed to it at the end. Merging: each file and link is staged in its own directory and renamed.
 */
#include <stdbool.h>

#include "archive-modes.h"
#include "archive-stream.h"
#include "beneath.h"
#include "sys.h"
#include "text.h"
#include "transfer.h"
#include "tree.h"

#define UNPACK_RESOLVE   (K_RESOLVE_BENEATH | K_RESOLVE_NO_SYMLINKS | K_RESOLVE_NO_MAGICLINKS)
#define UNPACK_DIRECTORY (K_O_PATH | K_O_DIRECTORY | K_O_CLOEXEC)
/* Names tried when a staging name is taken, by a leftover or out of spite. */
#define UNPACK_STAGES_MAX 64u

struct unpack {
    struct stream stream;
    const char *path;
    uint32_t id;
    bool merge;
    int parent;     /* replacing: the directory that holds the destination */
    int base;       /* the directory that entries are relative to, or -1 before it is made */
    char stage[48]; /* replacing: the name in `parent`, "" before it is made */
    bool single;    /* replacing: the stage is a file or link, so the stream must end */
    int cached;     /* descriptor of the directory named by cached_path, or -1 */
    char cached_path[CPRG_PATH_MAX];
    char entry_path[CPRG_PATH_MAX];
    struct transfer_result result;
};

static struct unpack unpack_state;
static char unpack_link_content[CPRG_PATH_MAX];

static int unpack_failed(struct unpack *unpack, enum cprg_step step, int error) {
    if (error < 0) {
        unpack->result.failure = step_of(step, (int32_t)unpack->result.entries, error);
    }
    return error;
}

/*** Staging names ***/

static void unpack_stage_name(const struct unpack *unpack, char name[48], uint32_t attempt) {
    size_t at = text_append(name, 48, 0, ".cprg-stage-");
    at = text_append_number(name, 48, at, unpack->id);
    if (attempt > 0) {
        at = text_append(name, 48, at, "-");
        (void)text_append_number(name, 48, at, attempt);
    }
}

/* Makes the thing itself: what the call returned, for a file a descriptor to write to. */
static int unpack_make(int dir, const char *name, const struct cprg_entry *entry,
                       const char *link) {
    switch ((enum cprg_entry_type)entry->type) {
    case CPRG_ENTRY_FILE:
        return sys_openat(dir, name, K_O_WRONLY | K_O_CREAT | K_O_EXCL | K_O_NOFOLLOW | K_O_CLOEXEC,
                          entry->mode);
    case CPRG_ENTRY_DIRECTORY:
        return sys_mkdirat(dir, name, entry->mode | 0700);
    case CPRG_ENTRY_LINK:
        return sys_symlinkat(link, dir, name);
    case CPRG_ENTRY_END:
    default:
        return -K_EINVAL;
    }
}

/* The same under a free staging name of `dir`; name is "" when it failed. */
static int unpack_stage(const struct unpack *unpack, int dir, char name[48],
                        const struct cprg_entry *entry, const char *link) {
    int result = -K_EEXIST;
    for (uint32_t attempt = 0; attempt < UNPACK_STAGES_MAX && result == -K_EEXIST; attempt++) {
        unpack_stage_name(unpack, name, attempt);
        result = unpack_make(dir, name, entry, link);
    }
    if (result < 0) {
        name[0] = '\0';
    }
    return result;
}

/*** Content ***/

/* Writes the content to `fd` and closes it. The step tells a bad stream from a full disk. */
static int unpack_content(struct unpack *unpack, int fd, uint64_t size) {
    int result = 0;
    while (size > 0 && result >= 0) {
        const unsigned char *bytes;
        size_t limit = size < STREAM_BUFFER ? (size_t)size : STREAM_BUFFER;
        long count = stream_next(&unpack->stream, limit, &bytes);
        if (count < 0) {
            result = unpack_failed(unpack, CPRG_STEP_STREAM, (int)count);
            break;
        }
        size -= (uint64_t)count;
        unpack->result.bytes += (uint64_t)count;
        while (count > 0 && result >= 0) {
            long written = sys_write(fd, bytes, (size_t)count);
            if (written > 0) {
                bytes += written;
                count -= written;
            } else if (written != -K_EINTR) {
                result =
                    unpack_failed(unpack, CPRG_STEP_ENTRY, written == 0 ? -K_EIO : (int)written);
            }
        }
    }
    (void)sys_close(fd);
    return result;
}

/* Reads the content of a link, which comes before it is made. Other entries have none here. */
static int unpack_link(struct unpack *unpack, const struct cprg_entry *entry,
                       char content[CPRG_PATH_MAX]) {
    if (entry->type != CPRG_ENTRY_LINK) {
        return 0;
    }
    int result = stream_link(&unpack->stream, entry, content);
    unpack->result.bytes += result < 0 ? 0 : entry->size; /* a size that is refused says nothing */
    return unpack_failed(unpack, CPRG_STEP_STREAM, result);
}

/* In a tree of its own a file or link takes the place of one that came before under its name. */
static int unpack_make_anew(int dir, const char *name, const struct cprg_entry *entry,
                            const char *link) {
    int result = unpack_make(dir, name, entry, link);
    if (result != -K_EEXIST) {
        return result;
    }
    result = sys_unlinkat(dir, name, 0);
    return result < 0 ? result : unpack_make(dir, name, entry, link);
}

/* Makes a file or link as `name` in `dir`. Merging, it is staged in the same directory first. */
static int unpack_leaf(struct unpack *unpack, int dir, const char *name,
                       const struct cprg_entry *entry) {
    char stage[48];
    int result = unpack_link(unpack, entry, unpack_link_content);
    if (result < 0) {
        return result;
    }
    result = unpack->merge ? unpack_stage(unpack, dir, stage, entry, unpack_link_content)
                           : unpack_make_anew(dir, name, entry, unpack_link_content);
    if (result < 0) {
        return unpack_failed(unpack, CPRG_STEP_ENTRY, result);
    }
    if (entry->type == CPRG_ENTRY_FILE) {
        result = unpack_content(unpack, result, entry->size);
    }
    if (unpack->merge && result >= 0) {
        result = unpack_failed(unpack, CPRG_STEP_ENTRY, sys_renameat2(dir, stage, dir, name, 0));
    }
    if (unpack->merge && result < 0) {
        (void)sys_unlinkat(dir, stage, 0);
    }
    return result;
}

/*** Entries below the base ***/

/* The directory that holds the entry. The one before is kept: streams mostly go through one
   directory after the other. */
static int unpack_entry_parent(struct unpack *unpack, const char **name) {
    *name = path_name(unpack->entry_path);
    size_t length = (size_t)(*name - unpack->entry_path);
    if (length == 0) {
        return unpack->base;
    }
    length--; /* the slash */
    if (unpack->cached >= 0 && strlen(unpack->cached_path) == length &&
        memcmp(unpack->cached_path, unpack->entry_path, length) == 0) {
        return unpack->cached;
    }
    if (unpack->cached >= 0) {
        (void)sys_close(unpack->cached);
    }
    memcpy(unpack->cached_path, unpack->entry_path, length);
    unpack->cached_path[length] = '\0';
    unpack->cached =
        beneath_open(unpack->base, unpack->cached_path, UNPACK_DIRECTORY, 0, UNPACK_RESOLVE);
    return unpack->cached;
}

/* A directory that is there already: it is this stream's own, which says it again, and gets the
   mode; or merging finds it, and it keeps its own: merging must not open or close /tmp. */
static int unpack_directory_again(const struct unpack *unpack, int dir, const char *name,
                                  const struct cprg_entry *entry) {
    int flags = unpack->merge ? UNPACK_DIRECTORY : K_O_RDONLY | K_O_DIRECTORY | K_O_CLOEXEC;
    int fd = sys_openat(dir, name, flags | K_O_NOFOLLOW, 0);
    if (fd < 0) {
        return fd;
    }
    int result = unpack->merge ? 0 : sys_fchmod(fd, entry->mode | 0700);
    (void)sys_close(fd);
    if (result < 0 || unpack->merge) {
        return result;
    }
    return archive_modes_add(unpack->entry_path, entry->mode);
}

static int unpack_directory(const struct unpack *unpack, int dir, const char *name,
                            const struct cprg_entry *entry) {
    int result = sys_mkdirat(dir, name, entry->mode | 0700);
    if (result == -K_EEXIST) {
        return unpack_directory_again(unpack, dir, name, entry);
    }
    return result < 0 ? result : archive_modes_add(unpack->entry_path, entry->mode);
}

static int unpack_below(struct unpack *unpack, const struct cprg_entry *entry) {
    const char *name;
    int dir = unpack_entry_parent(unpack, &name);
    if (dir < 0) {
        return unpack_failed(unpack, CPRG_STEP_ENTRY, dir);
    }
    if (entry->type == CPRG_ENTRY_DIRECTORY) {
        return unpack_failed(unpack, CPRG_STEP_ENTRY, unpack_directory(unpack, dir, name, entry));
    }
    return unpack_leaf(unpack, dir, name, entry);
}

/*** The destination itself ***/

/* The stage of a replacement: what an entry with an empty path describes, or a directory when the
   stream begins with something inside it. */
static int unpack_begin(struct unpack *unpack, const struct cprg_entry *entry) {
    static const struct cprg_entry directory = {.type = CPRG_ENTRY_DIRECTORY, .mode = 0755};
    const struct cprg_entry *self = unpack->entry_path[0] == '\0' ? entry : &directory;
    int result = unpack_link(unpack, self, unpack_link_content);
    if (result < 0) {
        return result;
    }
    result = unpack_stage(unpack, unpack->parent, unpack->stage, self, unpack_link_content);
    if (result >= 0 && self->type == CPRG_ENTRY_DIRECTORY) {
        unpack->base =
            sys_openat(unpack->parent, unpack->stage, UNPACK_DIRECTORY | K_O_NOFOLLOW, 0);
        result = unpack->base < 0 ? unpack->base : archive_modes_add("", self->mode);
    }
    unpack->single = self->type != CPRG_ENTRY_DIRECTORY;
    if (result < 0) {
        return unpack_failed(unpack, CPRG_STEP_ENTRY, result);
    }
    return self->type == CPRG_ENTRY_FILE ? unpack_content(unpack, result, self->size) : 0;
}

static int unpack_entry(struct unpack *unpack, const struct cprg_entry *entry) {
    bool itself = unpack->entry_path[0] == '\0';
    bool first = !unpack->merge && unpack->stage[0] == '\0';
    if (first) {
        int result = unpack_begin(unpack, entry);
        return result < 0 || itself ? result : unpack_below(unpack, entry);
    }
    /* Merging, the destination is there already; otherwise it may be described only once. */
    bool restated = itself && unpack->merge && entry->type == CPRG_ENTRY_DIRECTORY;
    if (unpack->single || (itself && !restated)) {
        return unpack_failed(unpack, CPRG_STEP_STREAM, -K_EINVAL);
    }
    return restated ? 0 : unpack_below(unpack, entry);
}

/* Opens the directory that holds the destination, making what is missing. Links on the way to the
   destination are followed, as the program's own would be. */
static int unpack_open_parent(const char *path) {
    char prefix[CPRG_PATH_MAX];
    size_t last = (size_t)(path_name(path) - path);
    memcpy(prefix, path, last);
    for (size_t at = 1; at < last; at++) {
        if (path[at] == '/') {
            prefix[at] = '\0';
            int result = sys_mkdirat(K_AT_FDCWD, prefix, 0755);
            if (result < 0 && result != -K_EEXIST) {
                return result;
            }
            prefix[at] = '/';
        }
    }
    prefix[last] = '\0';
    return sys_openat(K_AT_FDCWD, prefix, UNPACK_DIRECTORY, 0);
}

static int unpack_open(struct unpack *unpack) {
    int result = stream_open(&unpack->stream);
    if (result < 0) {
        return result;
    }
    if (unpack->merge) {
        unpack->base = sys_openat(K_AT_FDCWD, unpack->path, UNPACK_DIRECTORY, 0);
        return unpack->base;
    }
    if (!path_is_plain(unpack->path + 1, CPRG_DEPTH_MAX)) {
        return -K_EINVAL; /* "/" and "/x/.." have no name to replace */
    }
    unpack->parent = unpack_open_parent(unpack->path);
    return unpack->parent;
}

/* Two directories cannot replace each other by a plain rename, so they are exchanged and the old
   one, now under the staging name, is removed. */
static int unpack_commit(struct unpack *unpack) {
    const char *name = path_name(unpack->path);
    int dir = unpack->parent;
    int result = sys_renameat2(dir, unpack->stage, dir, name, K_RENAME_NOREPLACE);
    if (result != -K_EEXIST) {
        return result;
    }
    result = sys_renameat2(dir, unpack->stage, dir, name, K_RENAME_EXCHANGE);
    return result < 0 ? result : tree_remove(dir, unpack->stage);
}

static int unpack_finish(struct unpack *unpack) {
    if (!unpack->merge && unpack->stage[0] == '\0') {
        return unpack_failed(unpack, CPRG_STEP_STREAM, -K_EINVAL); /* nothing to put there */
    }
    if (unpack->base >= 0) {
        int result = archive_modes_apply(unpack->base);
        if (result < 0) {
            return unpack_failed(unpack, CPRG_STEP_ENTRY, result);
        }
    }
    return unpack->merge ? 0 : unpack_failed(unpack, CPRG_STEP_COMMIT, unpack_commit(unpack));
}

static int unpack_entries(struct unpack *unpack) {
    for (;;) {
        struct cprg_entry entry;
        int result = stream_entry(&unpack->stream, &entry, unpack->entry_path);
        if (result >= 0 && entry.type == CPRG_ENTRY_END) {
            return unpack_finish(unpack);
        }
        if (result >= 0 && unpack->result.entries >= CPRG_ENTRIES_MAX) {
            result = -K_EINVAL;
        }
        if (result < 0) {
            return unpack_failed(unpack, CPRG_STEP_STREAM, result);
        }
        result = unpack_entry(unpack, &entry);
        if (result < 0) {
            return result;
        }
        unpack->result.entries++;
    }
}

struct transfer_result archive_unpack(const char *path, uint32_t id, bool merge) {
    struct unpack *unpack = &unpack_state;
    *unpack = (struct unpack){.path = path, .id = id, .merge = merge};
    unpack->parent = -1;
    unpack->base = -1;
    unpack->cached = -1;
    int result = unpack_failed(unpack, CPRG_STEP_ENTRY, unpack_open(unpack));
    if (result >= 0) {
        result = unpack_entries(unpack);
    }
    if (result < 0 && unpack->stage[0] != '\0') {
        (void)tree_remove(unpack->parent, unpack->stage);
    }
    return unpack->result;
}

struct transfer_result archive_remove(const char *path) {
    char prefix[CPRG_PATH_MAX];
    const char *name = path_name(path);
    int result = -K_EINVAL; /* "/" and "/x/.." have no name to remove */
    if (path_is_plain(path + 1, CPRG_DEPTH_MAX)) {
        memcpy(prefix, path, (size_t)(name - path));
        prefix[name - path] = '\0';
        int parent = sys_openat(K_AT_FDCWD, prefix, UNPACK_DIRECTORY, 0);
        result = parent < 0 ? parent : tree_remove(parent, name);
    }
    result = result == -K_ENOENT ? 0 : result;
    return (struct transfer_result){step_of(CPRG_STEP_ENTRY, 0, result), 0, 0};
}
