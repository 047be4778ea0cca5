/* mount.h - the steps of a root plan that mount something. Every function returns 0 or -errno. */
#ifndef CPRG_MOUNT_H
#define CPRG_MOUNT_H

#include "root.h"

int mount_bind(struct root *root, const struct root_step *step);
int mount_proc(struct root *root, const struct root_step *step);
int mount_devpts(struct root *root, const struct root_step *step);
int mount_mask(struct root *root, const struct root_step *step);
int mount_data_bind(struct root *root, const struct root_step *step);
int mount_read_only(struct root *root, const struct root_step *step);

/* mount-legacy.c: kernels before 5.12. Binds source on target, both O_PATH, then gives each mount
   of that tree the MS_* bits of `flags` on top of its own. Needs the host's /proc. */
int mount_legacy_bind(int source, int target, unsigned flags);

#endif
