/* transfer.h - PACK, UNPACK and REMOVE: a child of init, with the program's id, that moves files.
 */
#ifndef CPRG_TRANSFER_H
#define CPRG_TRANSFER_H

#include "exec.h"

_Noreturn void transfer_child(const struct exec_start *start);

/* What one transfer did; step NONE: all of it. */
struct transfer_result {
    struct step_result failure;
    uint64_t entries; /* without the END entry */
    uint64_t bytes;   /* content of files and links */
};

#define TRANSFER_STREAM_FD 0

/* archive-pack.c: reads `path`, writes the stream. */
struct transfer_result archive_pack(const char *path);
/* archive-unpack.c: removes `path` and what is beneath it; links on the way to it are followed. */
struct transfer_result archive_remove(const char *path);
/* archive-unpack.c: reads the stream, makes `path`, or merges into it. */
struct transfer_result archive_unpack(const char *path, uint32_t id, bool merge);

#endif
