/* beneath.c - see beneath.h. */
#include "beneath.h"

#include <stdbool.h>

#include "cprg.h"
#include "sys.h"
#include "text.h"

/* openat2 answers EAGAIN when a rename raced with its check of "..": try again, but not for ever
   against a program that renames in a loop. */
#define BENEATH_RETRIES_MAX 64

/*** Without openat2 ***/

/* Copies the next component of *path and moves it on: its length, 0 at the end, < 0 too long. */
static long beneath_component(const char **path, char component[256]) {
    size_t size = 0;
    while (**path == '/') {
        (*path)++;
    }
    while (**path != '\0' && **path != '/') {
        if (size == 255) {
            return -K_ENAMETOOLONG;
        }
        component[size++] = *(*path)++;
    }
    component[size] = '\0';
    return (long)size;
}

static bool beneath_ends(const char *path) {
    while (*path == '/') {
        path++;
    }
    return *path == '\0';
}

static int beneath_walk(int dir, const char *path, int flags, uint32_t mode) {
    char component[256];
    int at = sys_openat(dir, ".", K_O_PATH | K_O_DIRECTORY | K_O_CLOEXEC, 0);
    while (at >= 0) {
        long size = beneath_component(&path, component);
        bool last = beneath_ends(path);
        int next;
        if (size < 0) {
            next = (int)size;
        } else if (text_equal(component, "..")) {
            next = -K_EACCES; /* could be right, but only openat2 can tell */
        } else if (last) {
            next = sys_openat(at, size == 0 ? "." : component, flags | K_O_NOFOLLOW | K_O_CLOEXEC,
                              mode);
        } else {
            next =
                sys_openat(at, component, K_O_PATH | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
        }
        (void)sys_close(at);
        if (next < 0 || last) {
            return next;
        }
        at = next;
    }
    return at;
}

/*** With it ***/

int beneath_open(int dir, const char *path, int flags, uint32_t mode, uint64_t resolve) {
    struct kernel_open_how how = {
        .flags = (uint64_t)(unsigned)(flags | K_O_CLOEXEC),
        .mode = (flags & K_O_CREAT) != 0 ? mode : 0, /* openat2 refuses a mode it will not use */
        .resolve = resolve,
    };
    int fd = -K_EAGAIN;
    for (unsigned i = 0; i < BENEATH_RETRIES_MAX && (fd == -K_EAGAIN || fd == -K_EINTR); i++) {
        fd = sys_openat2(dir, path, &how);
    }
    if (fd == -K_ENOSYS || fd == -K_EPERM) {
        if (path[0] == '/' && (resolve & K_RESOLVE_IN_ROOT) == 0) {
            return -K_EPERM;
        }
        return beneath_walk(dir, path, flags, mode);
    }
    return fd;
}
