/* channel.c - see channel.h. unix(7), cmsg(3); the macros of cmsg(3) are written out for one
   SCM_RIGHTS header, the only ancillary data that either end sends. */
#include "channel.h"

#include "sys.h"
#include "text.h"

union channel_control {
    struct kernel_cmsghdr header;
    unsigned char bytes[sizeof(struct kernel_cmsghdr) + CPRG_REQUEST_FDS_MAX * sizeof(int32_t)];
};
_Static_assert(sizeof(union channel_control) % 8 == 0, "CMSG_ALIGN");

int channel_send(int socket, const void *bytes, uint32_t length, const int32_t *fds,
                 uint32_t fd_count) {
    union channel_control control;
    /* sendmsg(2) only reads: the cast drops a const that struct msghdr cannot say. */
    struct kernel_iovec part = {(void *)(uintptr_t)bytes, length};
    struct kernel_msghdr header = {.iov = &part, .iov_count = 1};
    if (fd_count > CPRG_REQUEST_FDS_MAX || length > CPRG_REQUEST_MAX || length == 0) {
        return -K_EMSGSIZE;
    }
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        control.header.length = sizeof control.header + fd_count * sizeof(int32_t);
        control.header.level = K_SOL_SOCKET;
        control.header.type = K_SCM_RIGHTS;
        memcpy(control.bytes + sizeof control.header, fds, fd_count * sizeof(int32_t));
        header.control = &control;
        header.control_length = control.header.length;
    }
    for (;;) {
        long sent = sys_sendmsg(socket, &header, K_MSG_DONTWAIT | K_MSG_NOSIGNAL);
        if (sent != -K_EINTR) {
            return sent < 0 ? (int)sent : 0; /* SOCK_SEQPACKET sends all or nothing */
        }
    }
}

long channel_receive(int socket, void *bytes, uint32_t capacity, struct channel_message *message) {
    union channel_control control = {.bytes = {0}};
    struct kernel_iovec part = {bytes, capacity};
    struct kernel_msghdr header = {
        .iov = &part, .iov_count = 1, .control = &control, .control_length = sizeof control};
    long length;
    message->fd_count = 0;
    message->cut = false;
    do {
        length = sys_recvmsg(socket, &header, K_MSG_DONTWAIT | K_MSG_CMSG_CLOEXEC);
    } while (length == -K_EINTR);
    if (length < 0) {
        return length;
    }
    message->cut = (header.flags & (K_MSG_TRUNC | K_MSG_CTRUNC)) != 0;
    if (header.control_length >= sizeof control.header && control.header.level == K_SOL_SOCKET &&
        control.header.type == K_SCM_RIGHTS && control.header.length <= sizeof control) {
        size_t size = control.header.length - sizeof control.header;
        message->fd_count = (uint32_t)(size / sizeof(int32_t));
        memcpy(message->fds, control.bytes + sizeof control.header,
               message->fd_count * sizeof(int32_t));
    }
    return length;
}

void channel_close_fds(const struct channel_message *message) {
    for (uint32_t i = 0; i < message->fd_count; i++) {
        (void)sys_close(message->fds[i]);
    }
}
