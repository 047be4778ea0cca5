/* serve.h - the children that init serves: a table of CPRG_EXECS_MAX, no allocation. */
#ifndef CPRG_SERVE_H
#define CPRG_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "exec.h"
#include "sys.h"

/* Before the first request. 0 or -errno. */
int serve_start(uint32_t id_program, bool map_self);
/* Where the next message is to be received: message and received. */
struct exec_start *serve_buffer(void);
/* What was received there: starts a child, or signals one; every failure is a report. Closes the
   message's descriptors. */
void serve_message(struct exec_start *start, uint32_t length);
/* Most descriptors to wait for: a status socket and a listener for each child. */
#define SERVE_FDS_MAX (2 * CPRG_EXECS_MAX)
/* Appends what to wait for: how many. `fds` has room for SERVE_FDS_MAX. */
uint32_t serve_poll(struct kernel_pollfd *fds);
/* After poll: `fds` and `count` as serve_poll() left them. */
void serve_readable(const struct kernel_pollfd *fds, uint32_t count);
/* After SIGCHLD: reaps children and orphans that have ended. True: there may be more of them. */
bool serve_reap(void);

#endif
