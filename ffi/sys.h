/*
 * sys.h - raw system calls. Every wrapper returns what the kernel returned: a value >= 0, or
 * -errno. Nothing here touches errno, a thread pointer or memory of its own, so all of it may be
 * called in a child that shares the server's memory.
 */
#ifndef CPRG_SYS_H
#define CPRG_SYS_H

#include "sys-numbers.h"
#include "sys-types.h"

/*** The instruction ***/

#if defined(CPRG_FAKE_KERNEL) /* test/ffi/fuzz: every call goes to a kernel of the test's own */
long sys_call(enum sys_number number, long a, long b, long c, long d, long e, long f);
#elif defined(__x86_64__)
static inline long sys_call(enum sys_number number, long a, long b, long c, long d, long e,
                            long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#else
static inline long sys_call(enum sys_number number, long a, long b, long c, long d, long e,
                            long f) {
    register long x8 __asm__("x8") = (long)number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}
#endif

#define SYS_P(pointer)         ((long)(uintptr_t)(pointer))
#define SYS0(name)             sys_call(NR_##name, 0, 0, 0, 0, 0, 0)
#define SYS1(name, a)          sys_call(NR_##name, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(name, a, b)       sys_call(NR_##name, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(name, a, b, c)    sys_call(NR_##name, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(name, a, b, c, d) sys_call(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(name, a, b, c, d, e)                                                                  \
    sys_call(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define SYS6(name, a, b, c, d, e, f)                                                               \
    sys_call(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/*** Descriptors ***/

static inline long sys_read(int fd, void *bytes, size_t count) {
    return SYS3(read, fd, SYS_P(bytes), count);
}
static inline long sys_write(int fd, const void *bytes, size_t count) {
    return SYS3(write, fd, SYS_P(bytes), count);
}
static inline int sys_close(int fd) {
    return (int)SYS1(close, fd);
}
static inline int sys_close_range(unsigned first, unsigned last) {
    return (int)SYS3(close_range, first, last, 0);
}
static inline int sys_dup3(int from, int to, int flags) {
    return (int)SYS3(dup3, from, to, flags);
}
static inline int sys_fcntl(int fd, int command, long argument) {
    return (int)SYS3(fcntl, fd, command, argument);
}
static inline int sys_ioctl(int fd, unsigned request, void *argument) {
    return (int)SYS3(ioctl, fd, request, SYS_P(argument));
}
static inline int sys_pipe2(int fds[2], int flags) {
    return (int)SYS2(pipe2, SYS_P(fds), flags);
}
static inline int sys_flock(int fd, int operation) {
    return (int)SYS2(flock, fd, operation);
}
static inline int sys_memfd_create(const char *name, unsigned flags) {
    return (int)SYS2(memfd_create, SYS_P(name), flags);
}
static inline int sys_eventfd2(unsigned initial, int flags) {
    return (int)SYS2(eventfd2, initial, flags);
}
static inline int sys_signalfd4(int fd, const uint64_t *mask, int flags) {
    return (int)SYS4(signalfd4, fd, SYS_P(mask), sizeof *mask, flags);
}
static inline int sys_ppoll(struct kernel_pollfd *fds, size_t count,
                            const struct kernel_timespec *timeout) {
    return (int)SYS5(ppoll, SYS_P(fds), count, SYS_P(timeout), 0, sizeof(uint64_t));
}

/*** Sockets ***/

static inline int sys_socketpair(int domain, int type, int fds[2]) {
    return (int)SYS4(socketpair, domain, type, 0, SYS_P(fds));
}
static inline int sys_setsockopt(int fd, int option, int value) {
    return (int)SYS5(setsockopt, fd, K_SOL_SOCKET, option, SYS_P(&value), sizeof value);
}
static inline long sys_sendmsg(int fd, const struct kernel_msghdr *message, int flags) {
    return SYS3(sendmsg, fd, SYS_P(message), flags);
}
static inline long sys_recvmsg(int fd, struct kernel_msghdr *message, int flags) {
    return SYS3(recvmsg, fd, SYS_P(message), flags);
}

/*** Paths ***/

static inline int sys_openat(int dir, const char *path, int flags, unsigned mode) {
    return (int)SYS4(openat, dir, SYS_P(path), flags, mode);
}
static inline int sys_openat2(int dir, const char *path, const struct kernel_open_how *how) {
    return (int)SYS4(openat2, dir, SYS_P(path), SYS_P(how), sizeof *how);
}
static inline int sys_mkdirat(int dir, const char *path, unsigned mode) {
    return (int)SYS3(mkdirat, dir, SYS_P(path), mode);
}
static inline int sys_mknodat(int dir, const char *path, unsigned mode) {
    return (int)SYS4(mknodat, dir, SYS_P(path), mode, 0);
}
static inline int sys_symlinkat(const char *content, int dir, const char *path) {
    return (int)SYS3(symlinkat, SYS_P(content), dir, SYS_P(path));
}
static inline int sys_unlinkat(int dir, const char *path, int flags) {
    return (int)SYS3(unlinkat, dir, SYS_P(path), flags);
}
static inline int sys_renameat2(int from_dir, const char *from, int to_dir, const char *to,
                                unsigned flags) {
    return (int)SYS5(renameat2, from_dir, SYS_P(from), to_dir, SYS_P(to), flags);
}
static inline long sys_readlinkat(int dir, const char *path, char *content, size_t capacity) {
    return SYS4(readlinkat, dir, SYS_P(path), SYS_P(content), capacity);
}
static inline int sys_statx(int dir, const char *path, int flags, struct kernel_statx *out) {
    return (int)SYS5(statx, dir, SYS_P(path), flags, K_STATX_BASIC, SYS_P(out));
}
static inline int sys_fstat(int fd, struct kernel_statx *out) {
    return sys_statx(fd, "", K_AT_EMPTY_PATH, out);
}
static inline int sys_fstatfs(int fd, struct kernel_statfs *out) {
    return (int)SYS2(fstatfs, fd, SYS_P(out));
}
static inline int sys_fchmod(int fd, unsigned mode) {
    return (int)SYS2(fchmod, fd, mode);
}
static inline int sys_fchmodat(int dir, const char *path, unsigned mode) {
    return (int)SYS3(fchmodat, dir, SYS_P(path), mode);
}
static inline int sys_fchownat(int dir, const char *path, unsigned uid, unsigned gid, int flags) {
    return (int)SYS5(fchownat, dir, SYS_P(path), uid, gid, flags);
}
static inline int sys_chdir(const char *path) {
    return (int)SYS1(chdir, SYS_P(path));
}
static inline int sys_fchdir(int fd) {
    return (int)SYS1(fchdir, fd);
}
static inline long sys_getdents64(int fd, void *entries, size_t capacity) {
    return SYS3(getdents64, fd, SYS_P(entries), capacity);
}
static inline unsigned sys_umask(unsigned mask) {
    return (unsigned)SYS1(umask, mask);
}

/*** Mounts ***/

static inline int sys_mount(const char *source, const char *target, const char *type,
                            unsigned flags, const char *options) {
    return (int)SYS5(mount, SYS_P(source), SYS_P(target), SYS_P(type), flags, SYS_P(options));
}
static inline int sys_umount2(const char *target, int flags) {
    return (int)SYS2(umount2, SYS_P(target), flags);
}
static inline int sys_pivot_root(const char *new_root, const char *put_old) {
    return (int)SYS2(pivot_root, SYS_P(new_root), SYS_P(put_old));
}
static inline int sys_open_tree(int dir, const char *path, unsigned flags) {
    return (int)SYS3(open_tree, dir, SYS_P(path), flags);
}
static inline int sys_move_mount(int from, int dir, const char *path, unsigned flags) {
    return (int)SYS5(move_mount, from, SYS_P(""), dir, SYS_P(path),
                     flags | K_MOVE_MOUNT_F_EMPTY_PATH);
}
static inline int sys_mount_setattr(int fd, unsigned flags, const struct kernel_mount_attr *attr) {
    return (int)SYS5(mount_setattr, fd, SYS_P(""), flags | K_AT_EMPTY_PATH, SYS_P(attr),
                     sizeof *attr);
}

/*** Memory ***/

static inline long sys_mmap(size_t length, int protection, int flags) {
    return SYS6(mmap, 0, length, protection, flags, -1, 0);
}
static inline int sys_mprotect(uintptr_t address, size_t length, int protection) {
    return (int)SYS3(mprotect, address, length, protection);
}
static inline int sys_munmap(uintptr_t address, size_t length) {
    return (int)SYS2(munmap, address, length);
}
static inline long sys_mremap(uintptr_t address, size_t old_length, size_t length) {
    return SYS4(mremap, address, old_length, length, K_MREMAP_MAYMOVE);
}

/*** Processes ***/

/* fork(2): no stack of its own, so the child has a copy of this one. */
static inline int sys_fork(void) {
    return (int)SYS5(clone, K_SIGCHLD, 0, 0, 0, 0);
}
static inline int sys_unshare(unsigned flags) {
    return (int)SYS1(unshare, flags);
}
static inline int sys_execve(const char *path, char *const argv[], char *const envp[]) {
    return (int)SYS3(execve, SYS_P(path), SYS_P(argv), SYS_P(envp));
}
static inline int sys_execveat(int dir, const char *path, char *const argv[], char *const envp[],
                               int flags) {
    return (int)SYS5(execveat, dir, SYS_P(path), SYS_P(argv), SYS_P(envp), flags);
}
_Noreturn static inline void sys_exit(int code) {
    for (;;) {
        (void)SYS1(exit_group, code);
    }
}
/* Ends the calling thread alone. */
_Noreturn static inline void sys_exit_thread(int code) {
    for (;;) {
        (void)SYS1(exit, code);
    }
}
static inline int sys_wait4(int pid, int *status, int options, struct kernel_rusage *usage) {
    return (int)SYS4(wait4, pid, SYS_P(status), options, SYS_P(usage));
}
static inline int sys_waitid(int type, int id, struct kernel_siginfo *info, int options) {
    return (int)SYS5(waitid, type, id, SYS_P(info), options, 0);
}
static inline int sys_getpid(void) {
    return (int)SYS0(getpid);
}
static inline int sys_kill(int pid, int signal) {
    return (int)SYS2(kill, pid, signal);
}
static inline int sys_pidfd_open(int pid) {
    return (int)SYS2(pidfd_open, pid, 0);
}
static inline int sys_pidfd_send_signal(int pidfd, int signal) {
    return (int)SYS4(pidfd_send_signal, pidfd, signal, 0, 0);
}
static inline int sys_setsid(void) {
    return (int)SYS0(setsid);
}
static inline int sys_setpriority(int which, int who, int nice) {
    return (int)SYS3(setpriority, which, who, nice);
}
static inline int sys_ioprio_set(int which, int who, int priority) {
    return (int)SYS3(ioprio_set, which, who, priority);
}
static inline int sys_sched_setaffinity(int pid, size_t length, const void *mask) {
    return (int)SYS3(sched_setaffinity, pid, length, SYS_P(mask));
}
static inline int sys_personality(unsigned long persona) {
    return (int)SYS1(personality, persona);
}
static inline int sys_prlimit64(int resource, const struct kernel_rlimit *set,
                                struct kernel_rlimit *get) {
    return (int)SYS4(prlimit64, 0, resource, SYS_P(set), SYS_P(get));
}
static inline int sys_sethostname(const char *name, size_t length) {
    return (int)SYS2(sethostname, SYS_P(name), length);
}
static inline int sys_clock_gettime(int clock, struct kernel_timespec *out) {
    return (int)SYS2(clock_gettime, clock, SYS_P(out));
}

/*** Signals ***/

static inline int sys_sigprocmask(int how, const uint64_t *set, uint64_t *old) {
    return (int)SYS4(rt_sigprocmask, how, SYS_P(set), SYS_P(old), sizeof *set);
}
static inline int sys_sigaction(int signal, const struct kernel_sigaction *action) {
    return (int)SYS4(rt_sigaction, signal, SYS_P(action), 0, sizeof(uint64_t));
}

/*** Identity ***/

static inline unsigned sys_geteuid(void) {
    return (unsigned)SYS0(geteuid);
}
static inline unsigned sys_getegid(void) {
    return (unsigned)SYS0(getegid);
}
static inline int sys_setgroups(size_t count, const uint32_t *groups) {
    return (int)SYS2(setgroups, count, SYS_P(groups));
}
static inline int sys_setresuid(unsigned id) {
    return (int)SYS3(setresuid, id, id, id);
}
static inline int sys_setresgid(unsigned id) {
    return (int)SYS3(setresgid, id, id, id);
}
static inline int sys_capget(struct kernel_cap_header *header, struct kernel_cap_sets sets[2]) {
    return (int)SYS2(capget, SYS_P(header), SYS_P(sets));
}
static inline int sys_capset(struct kernel_cap_header *header,
                             const struct kernel_cap_sets sets[2]) {
    return (int)SYS2(capset, SYS_P(header), SYS_P(sets));
}
static inline int sys_prctl(int option, unsigned long a, unsigned long b) {
    return (int)SYS5(prctl, option, a, b, 0, 0);
}
static inline int sys_seccomp(unsigned operation, unsigned flags, const void *argument) {
    return (int)SYS3(seccomp, operation, flags, SYS_P(argument));
}
static inline int sys_keyctl(int operation, const char *name) {
    return (int)SYS2(keyctl, operation, SYS_P(name));
}

#endif
