/* serve.h - the children that init serves: a table of CPRG_EXECS_MAX, no allocation. */
#ifndef CPRG_SERVE_H
#define CPRG_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "sys.h"

struct serve_identity {
    uint32_t id_program;
    bool map_self;
};

/* Before the first request. 0 or -errno. */
int serve_start(struct serve_identity identity);
/* One message: starts a child, or signals one; every failure is a report. Closes the message's
   descriptors. */
void serve_message(const unsigned char *bytes, uint32_t length,
                   const struct channel_message *received);
/* Appends the status pipes to wait for: how many. `fds` has room for CPRG_EXECS_MAX. */
uint32_t serve_poll(struct kernel_pollfd *fds);
/* After poll: `fds` and `count` as serve_poll() left them. */
void serve_readable(const struct kernel_pollfd *fds, uint32_t count);
/* After SIGCHLD: reaps every child and orphan that has ended. */
void serve_reap(void);

#endif
