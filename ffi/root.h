/* root.h - the root while it is built: every target is resolved inside it, whatever links the
   plan made before. */
#ifndef CPRG_ROOT_H
#define CPRG_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include "cprg.h"

struct root {
    int fd;                  /* O_PATH, the tmpfs that becomes "/" */
    uint32_t program_owner;  /* id that owns the program's directories while building */
    int null_fd;             /* O_PATH of the host's /dev/null, or -1 until a mask needs it */
    int mask_fd;             /* O_PATH of the first empty mask directory, or -1 */
    int data_fd;             /* O_PATH of the data tmpfs, or -1 */
    const char *data_target; /* where it is mounted until the plan ends */
};

/* One step of a plan, its offsets resolved and checked. */
struct root_step {
    uint32_t flags;
    uint32_t mode;
    const char *source;
    uint32_t source_length;
    const char *target;
};

/* An O_PATH descriptor of an existing target, the last link followed inside the root. */
int root_open(const struct root *root, const char *target, int flags);
/* The directory that holds target, made with its parents (0755) if missing; *name is the rest.
   May be root->fd itself: root_close() knows. */
int root_parent(const struct root *root, const char *target, const char **name);
/* target as a place to mount on, made if missing: a directory of `mode`, or an empty file. */
int root_mount_point(const struct root *root, const char *target, bool directory, uint32_t mode);
void root_close(const struct root *root, int fd);

int root_make_directory(const struct root *root, const struct root_step *step);
int root_make_file(const struct root *root, const struct root_step *step);
int root_make_link(const struct root *root, const struct root_step *step);

#endif
