/* child.h - what cprg_launch() prepares for the process that it clones. */
#ifndef CPRG_CHILD_H
#define CPRG_CHILD_H

#include <stdint.h>

#include "cprg.h"

/*
 * Everything the child reads. It lives in the arena, beside the child's stack, because the caller's
 * memory may be reused as soon as cprg_launch() returns while the child still runs.
 */
struct child_start {
    struct cprg_launch request;
    int32_t go[2];    /* pipe of CPRG_MAP_PARENT, or -1: the child waits for one byte */
    char own_uid[24]; /* CPRG_MAP_SELF: ids to map 0 to, in decimal */
    char own_gid[24];
    char *argv[4];
    char *envp[1];
};

/* Runs in the cloned process, on its own stack. Never returns. */
_Noreturn void child_main(const struct child_start *start);

#endif
