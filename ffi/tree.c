/*
 * tree.c - see tree.h.
 *
 * One descriptor, however deep the tree: the way up is "..", and because somebody may move a
 * directory meanwhile, each level's identity is remembered and checked, so that nothing outside
 * the tree is ever touched.
 */
#include "tree.h"

#include <stdbool.h>
#include <stdint.h>

#include "sys.h"
#include "text.h"

#define TREE_DEPTH_MAX 4096u
/* Names looked at, altogether: an end even against a program that makes files as fast as they are
   removed. */
#define TREE_NAMES_MAX 16000000u

#define TREE_OPEN (K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC)

struct tree_level {
    uint64_t device;
    uint64_t inode;
};

static struct tree_level tree_levels[TREE_DEPTH_MAX];
static _Alignas(8) unsigned char tree_entries[8192];

static struct tree_level tree_identity(int fd) {
    struct kernel_statx status = {0};
    if (sys_fstat(fd, &status) < 0) {
        return (struct tree_level){0, 0};
    }
    return (struct tree_level){((uint64_t)status.dev_major << 32) | status.dev_minor, status.ino};
}

/* Opens a directory so that its entries can be removed; a mode that forbids it is changed. */
static int tree_open(int dir, const char *name) {
    int fd = sys_openat(dir, name, TREE_OPEN, 0);
    if (fd == -K_EACCES) {
        (void)sys_fchmodat(dir, name, 0700);
        fd = sys_openat(dir, name, TREE_OPEN, 0);
    }
    if (fd >= 0) {
        (void)sys_fchmod(fd, 0700);
    }
    return fd;
}

static bool tree_is_self_or_parent(const char *name) {
    return text_equal(name, ".") || text_equal(name, "..");
}

/* Removes a file or an empty directory: 1 if it is a directory that is not empty. */
static int tree_remove_name(int dir, const char *name) {
    int result = sys_unlinkat(dir, name, 0);
    if (result == -K_EISDIR) {
        result = sys_unlinkat(dir, name, K_AT_REMOVEDIR);
    }
    if (result == -K_ENOTEMPTY || result == -K_EEXIST) {
        return 1;
    }
    return result == -K_ENOENT ? 0 : result;
}

/* Removes what it can of one directory: a descriptor of the first full directory in it, -ENOENT
   when nothing is left, or another -errno. */
static int tree_empty_level(int fd, uint32_t *names) {
    for (;;) {
        long size = sys_getdents64(fd, tree_entries, sizeof tree_entries);
        if (size <= 0) {
            return size < 0 ? (int)size : -K_ENOENT;
        }
        for (long at = 0; at < size;) {
            const struct kernel_dirent *entry = (const void *)(tree_entries + at);
            at += entry->reclen;
            if (tree_is_self_or_parent(entry->name)) {
                continue;
            }
            if (++*names > TREE_NAMES_MAX) {
                return -K_E2BIG;
            }
            int result = tree_remove_name(fd, entry->name);
            if (result != 0) {
                return result < 0 ? result : tree_open(fd, entry->name);
            }
        }
    }
}

static int tree_up(int fd, uint32_t depth) {
    int up = sys_openat(fd, "..", TREE_OPEN, 0);
    if (up < 0) {
        return up;
    }
    struct tree_level level = tree_identity(up);
    if (level.device != tree_levels[depth].device || level.inode != tree_levels[depth].inode) {
        (void)sys_close(up);
        return -K_ESTALE;
    }
    return up;
}

/* Empties the directory `fd` and closes it. */
static int tree_empty(int fd) {
    uint32_t depth = 0;
    uint32_t names = 0;
    tree_levels[0] = tree_identity(fd);
    for (;;) {
        int next = tree_empty_level(fd, &names);
        if (next >= 0) {
            if (++depth == TREE_DEPTH_MAX) {
                (void)sys_close(next);
                next = -K_E2BIG;
            } else {
                tree_levels[depth] = tree_identity(next);
            }
        } else if (next == -K_ENOENT && depth > 0) {
            next = tree_up(fd, --depth);
        }
        (void)sys_close(fd);
        if (next < 0) {
            return next == -K_ENOENT ? 0 : next;
        }
        fd = next;
    }
}

int tree_remove(int dir, const char *name) {
    int result = tree_remove_name(dir, name);
    if (result <= 0) {
        return result;
    }
    int fd = tree_open(dir, name);
    result = fd < 0 ? fd : tree_empty(fd);
    return result < 0 ? result : sys_unlinkat(dir, name, K_AT_REMOVEDIR);
}
