/* beneath.h - opening a path that must not lead out of a directory. */
#ifndef CPRG_BENEATH_H
#define CPRG_BENEATH_H

#include <stdint.h>

/*
 * openat2(2), Linux 5.6. `resolve` holds RESOLVE_* bits. Where the kernel or an old container's
 * filter lacks the call: a walk that follows no symbolic link at all, which is right for
 * RESOLVE_NO_SYMLINKS and stricter (ELOOP) for RESOLVE_IN_ROOT. Close-on-exec always.
 */
int beneath_open(int dir, const char *path, int flags, uint32_t mode, uint64_t resolve);

#endif
