/* root.c - see root.h. */
#include "root.h"

#include "beneath.h"
#include "sys.h"
#include "text.h"

#define ROOT_DIRECTORY (K_O_PATH | K_O_DIRECTORY)

/*** Resolving ***/

int root_open(const struct root *root, const char *target, int flags) {
    return beneath_open(root->fd, target, flags, 0, K_RESOLVE_IN_ROOT | K_RESOLVE_NO_MAGICLINKS);
}

void root_close(const struct root *root, int fd) {
    if (fd >= 0 && fd != root->fd) {
        (void)sys_close(fd);
    }
}

/* Opens the directory `path`, making what is missing on the way. Each prefix is resolved anew from
   the root: a link in the middle may be absolute. `path` is put back before it returns. */
static int root_make_parents(const struct root *root, char *path) {
    int at = root->fd;
    char *name = path + 1;
    for (;;) {
        char *end = name;
        while (*end != '\0' && *end != '/') {
            end++;
        }
        char after = *end;
        *end = '\0';
        int next = root_open(root, path, ROOT_DIRECTORY);
        if (next == -K_ENOENT) {
            next = sys_mkdirat(at, name, 0755);
            if (next >= 0 || next == -K_EEXIST) {
                next = root_open(root, path, ROOT_DIRECTORY);
            }
        }
        *end = after;
        root_close(root, at);
        if (next < 0 || after == '\0') {
            return next;
        }
        at = next;
        name = end + 1;
    }
}

int root_parent(const struct root *root, const char *target, const char **name) {
    char path[CPRG_PATH_MAX];
    *name = path_name(target);
    size_t length = (size_t)(*name - target) - 1; /* without the slash before the name */
    if (length == 0) {
        return root->fd;
    }
    memcpy(path, target, length);
    path[length] = '\0';
    int fd = root_open(root, path, ROOT_DIRECTORY);
    return fd == -K_ENOENT ? root_make_parents(root, path) : fd;
}

/*** Making ***/

int root_mount_point(const struct root *root, const char *target, bool directory, uint32_t mode) {
    const char *name;
    int parent = root_parent(root, target, &name);
    int fd;
    if (parent < 0) {
        return parent;
    }
    if (directory) {
        fd = sys_mkdirat(parent, name, mode);
        if (fd >= 0) {
            fd = sys_openat(parent, name, ROOT_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
        }
    } else {
        fd = sys_openat(parent, name,
                        K_O_RDONLY | K_O_CREAT | K_O_EXCL | K_O_NOFOLLOW | K_O_CLOEXEC, mode);
    }
    root_close(root, parent);
    return fd == -K_EEXIST ? root_open(root, target, K_O_PATH) : fd;
}

int root_make_directory(const struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    if (parent < 0) {
        return parent;
    }
    int result = sys_mkdirat(parent, name, step->mode);
    if (result == -K_EEXIST) { /* made as the parent of an earlier target */
        int fd =
            sys_openat(parent, name, K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
        result = fd < 0 ? fd : sys_fchmod(fd, step->mode);
        root_close(root, fd);
    }
    root_close(root, parent);
    return result;
}

static int root_write(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        long written = sys_write(fd, bytes, length);
        if (written < 0 && written != -K_EINTR) {
            return (int)written;
        }
        if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
    return 0;
}

int root_make_file(const struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    if (parent < 0) {
        return parent;
    }
    int fd = sys_openat(parent, name,
                        K_O_WRONLY | K_O_CREAT | K_O_EXCL | K_O_NOFOLLOW | K_O_CLOEXEC, step->mode);
    int result = fd < 0 ? fd : root_write(fd, step->source, step->source_length);
    root_close(root, fd);
    root_close(root, parent);
    return result;
}

int root_make_link(const struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    if (parent < 0) {
        return parent;
    }
    int result = sys_symlinkat(step->source, parent, name);
    root_close(root, parent);
    return result;
}
