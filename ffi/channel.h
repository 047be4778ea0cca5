/* channel.h - messages with descriptors over a SOCK_SEQPACKET socket, for both ends of it. */
#ifndef CPRG_CHANNEL_H
#define CPRG_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "cprg.h"

struct channel_message {
    int32_t fds[CPRG_REQUEST_FDS_MAX];
    uint32_t fd_count;
    bool cut; /* the message or its descriptors did not fit */
};

/* One message; never blocks and never raises SIGPIPE. 0 or -errno. */
int channel_send(int socket, const void *bytes, uint32_t length, const int32_t *fds,
                 uint32_t fd_count);
/* One message; never blocks. Its length, 0 at the end, or -errno; descriptors close on exec. */
long channel_receive(int socket, void *bytes, uint32_t capacity, struct channel_message *message);
void channel_close_fds(const struct channel_message *message);

#endif
