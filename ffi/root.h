/* root.h - the root while it is built: every target is resolved inside it, whatever links the
   plan made before. */
#ifndef CPRG_ROOT_H
#define CPRG_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include "cprg.h"

struct root {
    int fd;                 /* O_PATH, the tmpfs that becomes "/" */
    uint32_t program_owner; /* id that owns the program's directories while building */
    int mask_file_fd;       /* the first masked file's mount, or -1: the source of the next */
    int mask_directory_fd;  /* the same for directories */
    int data_fd;            /* O_PATH of the data tmpfs, or -1 */
    /* The directory of the last target: plans fill one directory after the other. */
    int parent_fd;
    char parent_path[CPRG_PATH_MAX];
};

/* One step of a plan, its offsets resolved and checked. */
struct root_step {
    uint32_t flags;
    uint32_t mode;
    const char *source;
    uint32_t source_length;
    const char *target;
};

/* Where something is to be mounted: a name that root_place() just made in a directory, or, with
   an empty name, a descriptor of what was there before. */
struct root_place {
    int fd;
    const char *name;
};

/* An O_PATH descriptor of an existing target, the last link followed inside the root. */
int root_open(struct root *root, const char *target, int flags);
/* The directory that holds target, made with its parents (0755) if missing; *name is the rest.
   The descriptor belongs to `root` and is good until the next call. */
int root_parent(struct root *root, const char *target, const char **name);
/* target as a place to mount on, made if missing: a directory, or an empty file. 0 or -errno. */
int root_place(struct root *root, const char *target, bool directory, struct root_place *place);
void root_place_close(const struct root_place *place);

int root_make_directory(struct root *root, const struct root_step *step);
int root_make_file(struct root *root, const struct root_step *step);
int root_make_link(struct root *root, const struct root_step *step);

#endif
