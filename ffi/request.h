/* request.h - one request of the server, checked as a whole before its first effect. */
#ifndef CPRG_REQUEST_H
#define CPRG_REQUEST_H

#include <stdint.h>

#include "channel.h"
#include "cprg.h"
#include "message.h"

struct request {
    struct message message;
    const struct cprg_request *head;
    const struct cprg_rlimit *rlimits;
    const char *path;
    const uint32_t *argv; /* offsets of strings, all checked */
    const uint32_t *envp;
    const void *notify; /* seccomp programs, NULL: none */
    const void *kill;
    const int32_t *stream_fds; /* stdin, stdout, stderr; or the one of a transfer */
    uint32_t stream_fd_count;
    const int32_t *cgroup_fds;
};

/* 0, or -errno: nothing of the request may then be used but request->head->id, and that only if
   head is not NULL. */
int request_check(struct request *request, const unsigned char *bytes, uint32_t length,
                  const struct channel_message *received);

#endif
