/* kernel.c - see kernel.h. */
#include "kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cprg.h"
#include "files.h"
#include "sys-clone.h"
#include "sys.h"

struct fake_kernel fake;
jmp_buf fake_exit;

_Noreturn void fake_abort(const char *condition, const char *file, int line) {
    (void)fprintf(stderr, "%s:%d: not so: %s (after %u calls)\n", file, line, condition,
                  fake.calls);
    abort();
}

void fake_start(const uint8_t *input, size_t size) {
    fake = (struct fake_kernel){0};
    memcpy(fake.header, input, FAKE_HEADER);
    fake.text = input + FAKE_HEADER;
    fake.text_size = size - FAKE_HEADER;
    for (int fd = 0; fd < FAKE_FDS_MAX; fd++) {
        fake.open[fd] = fd < FAKE_FD_FIRST;
        fake.pair[fd] = -1;
    }
}

/*** Descriptors ***/

int fake_open(void) {
    for (int fd = 0; fd < FAKE_FDS_MAX; fd++) {
        if (!fake.open[fd]) {
            fake.open[fd] = true;
            fake.depth[fd] = 0;
            fake.listed[fd] = false;
            fake.pair[fd] = -1;
            return fd;
        }
    }
    return -K_EMFILE;
}

uint32_t fake_open_count(void) {
    uint32_t count = 0;
    for (int fd = FAKE_FD_FIRST; fd < FAKE_FDS_MAX; fd++) {
        count += fake.open[fd] ? 1 : 0;
    }
    return count;
}

void fake_check_fd(long fd) {
    FAKE_CHECK(fd >= 0 && fd < FAKE_FDS_MAX && fake.open[fd]);
}

static long fake_close(long fd) {
    /* Blind closing is a way around a close_range that failed; else each is closed once. */
    if (fd >= 0 && fd < FAKE_FDS_MAX && fake.open[fd]) {
        fake.open[fd] = false;
        return 0;
    }
    FAKE_CHECK(fake.no_close_range);
    return -K_EBADF;
}

static long fake_dup(long from, long to) {
    fake_check_fd(from);
    FAKE_CHECK(from != to && to >= 0 && to < FAKE_FDS_MAX);
    fake.open[to] = true;
    fake.pair[to] = fake.pair[from];
    return to;
}

/*** Failures ***/

static bool fake_lacks(enum sys_number number) {
    unsigned missing = fake.header[FAKE_MISSING];
    switch ((int)number) {
    case NR_mount_setattr:
        return (missing & (FAKE_NO_MOUNT_API | FAKE_NO_MOUNT_SETATTR)) != 0;
    case NR_open_tree:
    case NR_move_mount:
        return (missing & FAKE_NO_MOUNT_API) != 0;
    case NR_close_range:
        return (missing & FAKE_NO_CLOSE_RANGE) != 0;
    case NR_seccomp:
        return (missing & FAKE_NO_LISTENER) != 0;
    default:
        return false;
    }
}

/* The errno with which this call fails, or 0. */
static int fake_fault(enum sys_number number) {
    static const int errors[] = {K_EINTR, K_EACCES, K_ENOENT, K_EEXIST, K_EINVAL, K_EAGAIN,
                                 K_EPERM, K_EMFILE, K_ELOOP,  K_EIO,    K_ENOSYS, K_ENOTDIR,
                                 K_EBUSY, K_ENOMEM, K_EPIPE,  K_ESTALE};
    if (number == NR_close || number == NR_exit_group || number == NR_clock_gettime) {
        return 0; /* these do not */
    }
    fake.calls++;
    for (size_t at = FAKE_FAULTS; at + 1 < FAKE_HEADER; at += 2) {
        if (fake.header[at] != 0 && fake.header[at] == fake.calls) {
            fake.faults++;
            return errors[fake.header[at + 1] % (sizeof errors / sizeof errors[0])];
        }
    }
    return fake_lacks(number) ? K_ENOSYS : 0;
}

/*** Processes ***/

/* The child's descriptor table is its own copy; its memory is the caller's, as in the real one. */
long sys_clone_call(enum sys_number number, const long arguments[5], sys_clone_entry entry,
                    void *argument) {
    static struct fake_kernel before;
    static jmp_buf outer;
    int fault = fake_fault(number);
    FAKE_CHECK(number == NR_clone && (arguments[0] & K_CLONE_VM) != 0);
    if (fault != 0) {
        return -fault;
    }
    memcpy(&before, &fake, sizeof before);
    memcpy(&outer, &fake_exit, sizeof outer);
    if (setjmp(fake_exit) == 0) {
        entry(argument);
        FAKE_NEVER("a child returned");
    }
    memcpy(&fake_exit, &outer, sizeof outer);
    memcpy(fake.open, before.open, sizeof fake.open);
    memcpy(fake.pair, before.pair, sizeof fake.pair);
    fake.single_names = before.single_names;
    return FAKE_PID;
}

static long fake_process(enum sys_number number, long a, long b, long c) {
    switch ((int)number) {
    case NR_exit_group:
        longjmp(fake_exit, FAKE_EXITED);
    case NR_execve: {
        FAKE_CHECK(fake_hooks.execve != NULL);
        long result = fake_hooks.execve((const char *)a, (char *const *)b, (char *const *)c);
        if (result == 0) {
            longjmp(fake_exit, FAKE_EXECUTED);
        }
        return result;
    }
    case NR_clone:
        return FAKE_PID;
    case NR_wait4:
        FAKE_CHECK(fake_hooks.wait4 != NULL);
        return fake_hooks.wait4((int *)b);
    case NR_kill:
        FAKE_CHECK(fake_hooks.kill != NULL);
        return fake_hooks.kill((int)a, (int)b);
    case NR_capget:
        memset((void *)b, 0, 2 * sizeof(struct kernel_cap_sets));
        return 0;
    case NR_ioctl:
        if (b == (long)K_SECCOMP_IOCTL_NOTIF_RECV) {
            ((struct kernel_seccomp_notif *)c)->pid = FAKE_PID;
        }
        return 0;
    case NR_chdir:
        (void)fake_path(a);
        return 0;
    default:
        return 0;
    }
}

/*** Descriptors and memory ***/

static long fake_close_range(long first) {
    for (long fd = first; fd < FAKE_FDS_MAX; fd++) {
        fake.open[fd] = false;
    }
    return 0;
}

static long fake_socketpair(long fds_address) {
    int32_t *fds = (int32_t *)fds_address;
    for (int i = 0; i < 2; i++) {
        fds[i] = fake_open();
        if (fds[i] < 0) {
            return fds[i];
        }
        fake.pair[fds[i]] = 0;
    }
    return 0;
}

/* The first of those polled is ready. */
static long fake_ppoll(long address, long count) {
    struct kernel_pollfd *fds = (struct kernel_pollfd *)address;
    for (long i = 0; i < count; i++) {
        fake_check_fd(fds[i].fd);
        fds[i].revents = 0;
    }
    fds[0].revents = fds[0].events;
    return 1;
}

/* The lists that grow: archive-modes.c. Freed by the target. */
static long fake_remap(void *old, size_t old_length, size_t length) {
    FAKE_CHECK(length > old_length && length <= ((size_t)1 << 24));
    void *memory = realloc(old, length);
    FAKE_CHECK(memory != NULL);
    return (long)memory;
}

static long fake_descriptor(enum sys_number number, long a, long b, long c) {
    switch ((int)number) {
    case NR_close:
        return fake_close(a);
    case NR_close_range:
        return fake_close_range(a);
    case NR_dup3:
        return fake_dup(a, b);
    case NR_signalfd4:
    case NR_eventfd2:
        return fake_open();
    case NR_open_tree:
        (void)fake_path(b);
        return fake_opened(a, "");
    case NR_seccomp:
        return (b & K_SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0 ? fake_open() : 0;
    case NR_ppoll:
        return fake_ppoll(a, b);
    case NR_sendmsg:
        return fake_sendmsg(a, b);
    case NR_recvmsg:
        FAKE_CHECK(fake_hooks.recvmsg != NULL);
        return fake_hooks.recvmsg((int)a, (void *)b);
    default:
        return fake_process(number, a, b, c);
    }
}

/*** The call ***/

long sys_call(enum sys_number number, long a, long b, long c, long d, long e, long f) {
    int fault = fake_fault(number);
    (void)f;
    if (fault != 0) {
        fake.no_close_range |= number == NR_close_range;
        return -fault;
    }
    switch ((int)number) {
    case NR_read:
        return fake_read(a, b, (size_t)c);
    case NR_write:
        return fake_write(a, b, (size_t)c);
    case NR_openat:
        return fake_openat(a, b, c);
    case NR_openat2:
        return fake_openat2(a, b, c);
    case NR_mkdirat:
    case NR_mknodat:
    case NR_fchownat:
    case NR_fchmodat:
        return fake_make(number, a, b);
    case NR_symlinkat:
        (void)fake_path(a);
        return fake_make(number, b, c);
    case NR_unlinkat:
        return fake_unlinkat(a, b, c);
    case NR_renameat2:
        return fake_renameat2(a, b, c, d, e);
    case NR_statx:
        return fake_statx(a, b, e);
    case NR_getdents64:
        return fake_getdents64(a, b, c);
    case NR_socketpair:
        return fake_socketpair(d);
    case NR_readlinkat:
        return fake_readlinkat(c, d);
    case NR_mount:
        return fake_mount(b, d, e);
    case NR_move_mount:
        fake_check_fd(a);
        (void)fake_path(d);
        return 0;
    case NR_fchdir:
    case NR_fchmod:
        fake_check_fd(a);
        return 0;
    case NR_mmap:
        return fake_remap(NULL, 0, (size_t)b);
    case NR_mremap:
        return fake_remap((void *)a, (size_t)b, (size_t)c);
    default:
        return fake_descriptor(number, a, b, c);
    }
}
