/*
 * sys-numbers.h - system call numbers of both machines, {x86_64, aarch64}.
 *
 * Own tables, because a cross build must not need the other machine's kernel headers. Numbers never
 * change once released; `make check` compares these with <asm/unistd.h> and <asm-generic/unistd.h>.
 */
#ifndef CPRG_SYS_NUMBERS_H
#define CPRG_SYS_NUMBERS_H

#define SYS_NUMBERS(X)                                                                             \
    X(read, 0, 63)                                                                                 \
    X(write, 1, 64)                                                                                \
    X(close, 3, 57)                                                                                \
    X(mmap, 9, 222)                                                                                \
    X(mprotect, 10, 226)                                                                           \
    X(munmap, 11, 215)                                                                             \
    X(rt_sigaction, 13, 134)                                                                       \
    X(rt_sigprocmask, 14, 135)                                                                     \
    X(ioctl, 16, 29)                                                                               \
    X(mremap, 25, 216)                                                                             \
    X(sendmsg, 46, 211)                                                                            \
    X(recvmsg, 47, 212)                                                                            \
    X(socketpair, 53, 199)                                                                         \
    X(setsockopt, 54, 208)                                                                         \
    X(clone, 56, 220)                                                                              \
    X(execve, 59, 221)                                                                             \
    X(exit, 60, 93)                                                                                \
    X(wait4, 61, 260)                                                                              \
    X(getpid, 39, 172)                                                                             \
    X(kill, 62, 129)                                                                               \
    X(fcntl, 72, 25)                                                                               \
    X(flock, 73, 32)                                                                               \
    X(chdir, 80, 49)                                                                               \
    X(fchdir, 81, 50)                                                                              \
    X(fchmod, 91, 52)                                                                              \
    X(umask, 95, 166)                                                                              \
    X(geteuid, 107, 175)                                                                           \
    X(getegid, 108, 177)                                                                           \
    X(setsid, 112, 157)                                                                            \
    X(setgroups, 116, 159)                                                                         \
    X(setresuid, 117, 147)                                                                         \
    X(setresgid, 119, 149)                                                                         \
    X(capget, 125, 90)                                                                             \
    X(capset, 126, 91)                                                                             \
    X(personality, 135, 92)                                                                        \
    X(fstatfs, 138, 44)                                                                            \
    X(setpriority, 141, 140)                                                                       \
    X(pivot_root, 155, 41)                                                                         \
    X(prctl, 157, 167)                                                                             \
    X(mount, 165, 40)                                                                              \
    X(umount2, 166, 39)                                                                            \
    X(sethostname, 170, 161)                                                                       \
    X(sched_setaffinity, 203, 122)                                                                 \
    X(getdents64, 217, 61)                                                                         \
    X(clock_gettime, 228, 113)                                                                     \
    X(exit_group, 231, 94)                                                                         \
    X(waitid, 247, 95)                                                                             \
    X(keyctl, 250, 219)                                                                            \
    X(ioprio_set, 251, 30)                                                                         \
    X(openat, 257, 56)                                                                             \
    X(mkdirat, 258, 34)                                                                            \
    X(mknodat, 259, 33)                                                                            \
    X(fchownat, 260, 54)                                                                           \
    X(unlinkat, 263, 35)                                                                           \
    X(symlinkat, 266, 36)                                                                          \
    X(readlinkat, 267, 78)                                                                         \
    X(fchmodat, 268, 53)                                                                           \
    X(ppoll, 271, 73)                                                                              \
    X(unshare, 272, 97)                                                                            \
    X(signalfd4, 289, 74)                                                                          \
    X(eventfd2, 290, 19)                                                                           \
    X(dup3, 292, 24)                                                                               \
    X(pipe2, 293, 59)                                                                              \
    X(prlimit64, 302, 261)                                                                         \
    X(renameat2, 316, 276)                                                                         \
    X(seccomp, 317, 277)                                                                           \
    X(memfd_create, 319, 279)                                                                      \
    X(execveat, 322, 281)                                                                          \
    X(statx, 332, 291)                                                                             \
    X(pidfd_send_signal, 424, 424)                                                                 \
    X(open_tree, 428, 428)                                                                         \
    X(move_mount, 429, 429)                                                                        \
    X(pidfd_open, 434, 434)                                                                        \
    X(clone3, 435, 435)                                                                            \
    X(close_range, 436, 436)                                                                       \
    X(openat2, 437, 437)                                                                           \
    X(mount_setattr, 442, 442)

#if defined(__x86_64__)
#define SYS_NUMBER(name, x86_64, aarch64) NR_##name = (x86_64),
#elif defined(__aarch64__)
#define SYS_NUMBER(name, x86_64, aarch64) NR_##name = (aarch64),
#else
#error "cprg knows x86_64 and aarch64"
#endif

enum sys_number { SYS_NUMBERS(SYS_NUMBER) };

#endif
