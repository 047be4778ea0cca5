/*
 * shim.c - the exports of libcprg.so besides those that launch. Each is one kernel facility that
 * JavaScript cannot reach; none has state. cprg.h says what each returns.
 */
#include "beneath.h"
#include "channel.h"
#include "cprg.h"
#include "sys.h"

CPRG_EXPORT int32_t cprg_abi(struct cprg_abi *out) {
    *out = (struct cprg_abi){
        .abi = CPRG_ABI,
        .error_size = sizeof(struct cprg_error),
        .launch_size = sizeof(struct cprg_launch),
        .launched_size = sizeof(struct cprg_launched),
        .launch_job_size = sizeof(struct cprg_launch_job),
        .wait_size = sizeof(struct cprg_wait),
        .statfs_size = sizeof(struct cprg_statfs),
        .request_size = sizeof(struct cprg_request),
        .plan_size = sizeof(struct cprg_plan),
        .plan_step_size = sizeof(struct cprg_plan_step),
        .rlimit_size = sizeof(struct cprg_rlimit),
        .report_size = sizeof(struct cprg_report),
        .entry_size = sizeof(struct cprg_entry),
    };
    return 0;
}

/*** Files ***/

static int32_t shim_fill_and_seal(int32_t fd, const unsigned char *bytes, uint64_t length) {
    while (length > 0) {
        long written = sys_write(fd, bytes, length);
        if (written < 0 && written != -K_EINTR) {
            return (int32_t)written;
        }
        if (written > 0) {
            bytes += written;
            length -= (uint64_t)written;
        }
    }
    return sys_fcntl(fd, K_F_ADD_SEALS, K_F_SEAL_ALL);
}

CPRG_EXPORT int32_t cprg_memfd(const char *name, const void *bytes, uint64_t length) {
    const unsigned flags = K_MFD_CLOEXEC | K_MFD_ALLOW_SEALING;
    int32_t fd = sys_memfd_create(name, flags | K_MFD_EXEC);
    if (fd == -K_EINVAL) {
        fd = sys_memfd_create(name, flags); /* before Linux 6.3 every memfd is executable */
    }
    if (fd < 0) {
        return fd;
    }
    int32_t result = shim_fill_and_seal(fd, bytes, length);
    if (result < 0) {
        (void)sys_close(fd);
        return result;
    }
    return fd;
}

CPRG_EXPORT int32_t cprg_lock(const char *path) {
    int32_t fd =
        sys_openat(K_AT_FDCWD, path, K_O_RDWR | K_O_CREAT | K_O_CLOEXEC | K_O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fd;
    }
    int32_t result = sys_flock(fd, K_LOCK_EX | K_LOCK_NB);
    if (result < 0) {
        (void)sys_close(fd);
        return result;
    }
    return fd;
}

CPRG_EXPORT int32_t cprg_statfs(int32_t fd, struct cprg_statfs *out) {
    struct kernel_statfs buffer;
    int32_t result = sys_fstatfs(fd, &buffer);
    if (result >= 0) {
        *out = (struct cprg_statfs){
            .block_bytes = (uint64_t)buffer.bsize,
            .blocks = buffer.blocks,
            .blocks_free = buffer.bfree,
            .inodes = buffer.files,
            .inodes_free = buffer.ffree,
        };
    }
    return result;
}

CPRG_EXPORT int32_t cprg_open_beneath(int32_t dirfd, const char *path, int32_t flags,
                                      uint32_t mode) {
    return beneath_open(dirfd, path, flags, mode,
                        K_RESOLVE_BENEATH | K_RESOLVE_NO_MAGICLINKS | K_RESOLVE_NO_SYMLINKS);
}

CPRG_EXPORT int32_t cprg_open_within(int32_t dirfd, const char *path, int32_t flags,
                                     uint32_t mode) {
    return beneath_open(dirfd, path, flags, mode, K_RESOLVE_BENEATH | K_RESOLVE_NO_MAGICLINKS);
}

/*** Pipes and sockets ***/

CPRG_EXPORT int32_t cprg_pipe(int32_t fds[2], uint32_t nonblock) {
    int32_t result = sys_pipe2(fds, K_O_CLOEXEC | (nonblock == 3 ? K_O_NONBLOCK : 0));
    if (result < 0 || nonblock == 0 || nonblock == 3) {
        return result;
    }
    /* F_SETFL replaces the file's status flags, of which a new pipe has none. */
    return sys_fcntl(fds[nonblock == 1 ? 0 : 1], K_F_SETFL, K_O_NONBLOCK);
}

CPRG_EXPORT int32_t cprg_socketpair(int32_t fds[2]) {
    int32_t result =
        sys_socketpair(K_AF_UNIX, K_SOCK_SEQPACKET | K_O_CLOEXEC, fds); /* SOCK_CLOEXEC */
    if (result < 0) {
        return result;
    }
    for (int i = 0; i < 2; i++) {
        /* socket(7): FORCE goes beyond net.core.wmem_max and needs CAP_NET_ADMIN. The kernel
           doubles the value, which leaves room for its own bookkeeping. */
        if (sys_setsockopt(fds[i], K_SO_SNDBUFFORCE, CPRG_REQUEST_MAX) < 0) {
            (void)sys_setsockopt(fds[i], K_SO_SNDBUF, CPRG_REQUEST_MAX);
        }
    }
    return 0;
}

CPRG_EXPORT int32_t cprg_send(int32_t socket, const void *bytes, uint32_t length,
                              const int32_t *fds, uint32_t fd_count) {
    return channel_send(socket, bytes, length, fds, fd_count);
}

CPRG_EXPORT int32_t cprg_receive(int32_t socket, void *bytes, uint32_t capacity, int32_t *fds,
                                 uint32_t fd_capacity, uint32_t *fd_count) {
    struct channel_message message;
    long length = channel_receive(socket, bytes, capacity, &message);
    *fd_count = 0;
    if (length < 0) {
        return (int32_t)length;
    }
    if (message.cut || message.fd_count > fd_capacity) {
        channel_close_fds(&message);
        return -K_EMSGSIZE;
    }
    for (uint32_t i = 0; i < message.fd_count; i++) {
        fds[i] = message.fds[i];
    }
    *fd_count = message.fd_count;
    return (int32_t)length;
}

CPRG_EXPORT int32_t cprg_read(int32_t fd, void *bytes, uint32_t capacity) {
    static const struct kernel_timespec at_once = {0, 0};
    unsigned char *target = bytes;
    uint32_t length = 0;
    if (capacity > INT32_MAX) {
        return -K_EINVAL; /* the answer could not say how many bytes there are */
    }
    while (length < capacity) {
        /* Asked first, so that a descriptor without O_NONBLOCK cannot stop the event loop. */
        struct kernel_pollfd readable = {.fd = fd, .events = K_POLLIN};
        long count = sys_ppoll(&readable, 1, &at_once);
        if (count > 0) {
            count = sys_read(fd, target + length, capacity - length);
            if (count == 0) {
                break;
            }
        } else if (count == 0) {
            count = -K_EAGAIN;
        }
        if (count < 0 && count != -K_EINTR) {
            return length > 0 ? (int32_t)length : (int32_t)count;
        }
        if (count > 0) {
            length += (uint32_t)count;
        }
    }
    return (int32_t)length;
}

CPRG_EXPORT int32_t cprg_readable(int32_t fd) {
    static const struct kernel_timespec at_once = {0, 0};
    struct kernel_pollfd readable = {.fd = fd, .events = K_POLLIN};
    long count = sys_ppoll(&readable, 1, &at_once);
    return count == -K_EINTR ? 0 : (int32_t)count;
}

/*** Terminals ***/

CPRG_EXPORT int32_t cprg_resize(int32_t master, uint32_t columns, uint32_t rows) {
    struct kernel_winsize size = {(uint16_t)rows, (uint16_t)columns, 0, 0};
    if (columns > UINT16_MAX || rows > UINT16_MAX) {
        return -K_EINVAL;
    }
    return sys_ioctl(master, K_TIOCSWINSZ, &size);
}

/* ioctl_tty(2): TIOCGPTPEER opens the other end without a path, so that nothing that the program
   may have put in its place is opened. */
static int32_t shim_terminal_peer(int32_t master, uint32_t columns, uint32_t rows) {
    int unlock = 0;
    int32_t result = sys_ioctl(master, K_TIOCSPTLCK, &unlock);
    if (result >= 0) {
        result = cprg_resize(master, columns, rows);
    }
    if (result < 0) {
        return result;
    }
    const uintptr_t flags = K_O_RDWR | K_O_NOCTTY | K_O_CLOEXEC;
    return sys_ioctl(master, K_TIOCGPTPEER, (void *)flags);
}

CPRG_EXPORT int32_t cprg_terminal(int32_t devpts, uint32_t columns, uint32_t rows, int32_t fds[3]) {
    int32_t master = sys_openat(
        devpts, "ptmx", K_O_RDWR | K_O_NOCTTY | K_O_NONBLOCK | K_O_CLOEXEC | K_O_NOFOLLOW, 0);
    if (master < 0) {
        return master;
    }
    int32_t again = sys_fcntl(master, K_F_DUPFD_CLOEXEC, 0);
    int32_t peer = again < 0 ? again : shim_terminal_peer(master, columns, rows);
    if (peer < 0) {
        (void)sys_close(master);
        if (again >= 0) {
            (void)sys_close(again);
        }
        return peer;
    }
    fds[0] = master;
    fds[1] = again;
    fds[2] = peer;
    return 0;
}

/*** Processes ***/

CPRG_EXPORT int32_t cprg_reap(int32_t pidfd, struct cprg_wait *out) {
    struct kernel_siginfo info = {0};
    *out = (struct cprg_wait){0};
    int32_t result;
    do {
        result = sys_waitid(K_P_PIDFD, pidfd, &info, K_WEXITED | K_WNOHANG | K_WALL);
    } while (result == -K_EINTR);
    if (result < 0 || info.pid == 0) {
        return result; /* waitid(2): pid stays 0 while it lives */
    }
    bool exited = info.code == K_CLD_EXITED;
    out->exited = 1;
    out->code = exited ? info.status : -1;
    out->signal = exited ? 0 : info.status;
    return 0;
}

CPRG_EXPORT int32_t cprg_signal(int32_t pidfd, int32_t signal) {
    return sys_pidfd_send_signal(pidfd, signal);
}

CPRG_EXPORT int32_t cprg_pidfd(int32_t pid) {
    return sys_pidfd_open(pid);
}

CPRG_EXPORT int32_t cprg_harden(void) {
    /* core(5): a piped core_pattern ignores a limit of 0, and only of 1 says "no dump". */
    static const struct kernel_rlimit none = {1, 1};
    int32_t result = sys_prctl(K_PR_SET_DUMPABLE, 0, 0);
    return result < 0 ? result : sys_prlimit64(K_RLIMIT_CORE, &none, NULL);
}
