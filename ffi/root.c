/* root.c - see root.h. */
#include "root.h"

#include "beneath.h"
#include "sys.h"
#include "text.h"

#define ROOT_DIRECTORY (K_O_PATH | K_O_DIRECTORY)

/*** Resolving ***/

static int root_resolve(const struct root *root, const char *target, int flags) {
    return beneath_open(root->fd, target, flags, 0, K_RESOLVE_IN_ROOT | K_RESOLVE_NO_MAGICLINKS);
}

/* A mount may come to lie over the remembered directory: whoever mounts without root_parent()
   forgets it. */
static void root_forget_parent(struct root *root) {
    if (root->parent_fd >= 0) {
        (void)sys_close(root->parent_fd);
        root->parent_fd = -1;
    }
}

int root_open(struct root *root, const char *target, int flags) {
    root_forget_parent(root);
    return root_resolve(root, target, flags);
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
        int next = sys_mkdirat(at, name, 0755);
        if (next >= 0 || next == -K_EEXIST) {
            next = root_resolve(root, path, ROOT_DIRECTORY);
        }
        *end = after;
        if (at != root->fd) {
            (void)sys_close(at);
        }
        if (next < 0 || after == '\0') {
            return next;
        }
        at = next;
        name = end + 1;
    }
}

int root_parent(struct root *root, const char *target, const char **name) {
    *name = path_name(target);
    size_t length = (size_t)(*name - target) - 1; /* without the slash before the name */
    if (root->parent_fd >= 0 && length > 0 && strlen(root->parent_path) == length &&
        memcmp(root->parent_path, target, length) == 0) {
        return root->parent_fd;
    }
    root_forget_parent(root);
    if (length == 0) {
        return root->fd;
    }
    memcpy(root->parent_path, target, length);
    root->parent_path[length] = '\0';
    root->parent_fd = root_resolve(root, root->parent_path, ROOT_DIRECTORY);
    if (root->parent_fd == -K_ENOENT) {
        root->parent_fd = root_make_parents(root, root->parent_path);
    }
    return root->parent_fd;
}

/*** Making ***/

int root_place(struct root *root, const char *target, bool directory, struct root_place *place) {
    int parent = root_parent(root, target, &place->name);
    if (parent < 0) {
        return parent;
    }
    place->fd = parent;
    int result = directory ? sys_mkdirat(parent, place->name, 0755)
                           : sys_mknodat(parent, place->name, K_S_IFREG | 0644);
    if (result != -K_EEXIST) {
        return result;
    }
    place->name = "";
    place->fd = root_open(root, target, K_O_PATH);
    return place->fd < 0 ? place->fd : 0;
}

void root_place_close(const struct root_place *place) {
    if (place->name[0] == '\0') {
        (void)sys_close(place->fd);
    }
}

int root_make_directory(struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    if (parent < 0) {
        return parent;
    }
    int result = sys_mkdirat(parent, name, step->mode);
    if (result == -K_EEXIST) { /* made as the parent of an earlier target */
        int fd =
            sys_openat(parent, name, K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
        if (fd < 0) {
            return fd;
        }
        result = sys_fchmod(fd, step->mode);
        (void)sys_close(fd);
    }
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

int root_make_file(struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    if (parent < 0) {
        return parent;
    }
    int fd = sys_openat(parent, name,
                        K_O_WRONLY | K_O_CREAT | K_O_EXCL | K_O_NOFOLLOW | K_O_CLOEXEC, step->mode);
    if (fd < 0) {
        return fd;
    }
    int result = root_write(fd, step->source, step->source_length);
    (void)sys_close(fd);
    return result;
}

int root_make_link(struct root *root, const struct root_step *step) {
    const char *name;
    int parent = root_parent(root, step->target, &name);
    return parent < 0 ? parent : sys_symlinkat(step->source, parent, name);
}
