/* reset.h - what process 1 inherits from the server and must not keep. */
#ifndef CPRG_RESET_H
#define CPRG_RESET_H

#include "report.h"

/* Ids first: maps 0 to own_uid and own_gid if they are not NULL (CPRG_MAP_SELF), becomes 0. */
struct step_result reset_identity(const char *own_uid, const char *own_gid);
/* The signal mask, umask, nice, I/O priority, affinity, timer slack, personality, session, keyring.
 */
struct step_result reset_inherited(void);
/* Signal dispositions. Cannot fail. */
void reset_dispositions(void);

/* Writes one line to a file of /proc in one write. 0 or -errno. */
int proc_write(int proc, const char *path, const char *line);

#endif
