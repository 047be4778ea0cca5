/* archive-modes.h - directory modes that must wait until everything in the directory is made. */
#ifndef CPRG_ARCHIVE_MODES_H
#define CPRG_ARCHIVE_MODES_H

#include <stdint.h>

/* Notes the mode of a directory that was made with `mode | 0700`; nothing if that is the same. */
int archive_modes_add(const char *path, uint32_t mode);
/* Sets them, the last noted first: a directory before the one that it is in. */
int archive_modes_apply(int base);

#endif
