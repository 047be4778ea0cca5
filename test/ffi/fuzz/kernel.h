/*
 * kernel.h - the kernel that the code of ffi/ sees while it is fuzzed: every system call comes to
 * fake_call() instead (CPRG_FAKE_KERNEL in ffi/sys.h). Descriptors are counted, paths are read to
 * their end and held to the rules of ffi/README.md, and any call can be made to fail, so that the
 * ways out after a failure are taken too. What is wrong aborts, which the fuzzer keeps.
 */
#ifndef CPRG_FUZZ_KERNEL_H
#define CPRG_FUZZ_KERNEL_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An input begins with these bytes; the rest is what the target parses. */
#define FAKE_HEADER 16u
enum fake_header {
    FAKE_MISSING = 0, /* bits of enum fake_missing */
    FAKE_CHUNK = 1,   /* most bytes that one read or write moves; 0: no bound */
    FAKE_FULL = 2,    /* how often a directory is found not empty */
    FAKE_TARGET = 3,  /* the target's own */
    FAKE_FAULTS = 4,  /* six pairs: which call fails (from 1; 0: none), index of its errno */
};
/* Newer calls that this kernel lacks. */
enum fake_missing {
    FAKE_NO_OPENAT2 = 1u,
    FAKE_NO_MOUNT_API = 2u,
    FAKE_NO_CLOSE_RANGE = 4u,
    FAKE_NO_LISTENER = 8u,
    FAKE_NO_MOUNT_SETATTR = 16u,
    FAKE_VIOLATION = 32u, /* not missing: the program makes a call that its filter traps */
};

#define FAKE_FDS_MAX  256
#define FAKE_FD_FIRST 5   /* 0 to 2 inert, 3 control, 4 report */
#define FAKE_PID      100 /* of the only child there is at a time */

/* What a run has seen; zero at its start, but for descriptors 0 to 4. */
struct fake_kernel {
    bool open[FAKE_FDS_MAX];
    uint16_t depth[FAKE_FDS_MAX]; /* of a directory: it is also its inode's number */
    bool listed[FAKE_FDS_MAX];    /* getdents64 has come to its end */
    int16_t pair[FAKE_FDS_MAX];   /* 0: an end of a socket pair, -1: not */
    const uint8_t *text;          /* what read() gives of descriptor 0 and of mountinfo */
    size_t text_size;
    size_t text_at;
    uint8_t header[FAKE_HEADER];
    uint32_t calls;
    uint32_t faults;     /* calls that were made to fail */
    int32_t stages;      /* staging names that exist */
    bool leaf;           /* the last one is a file or link */
    uint32_t commits;    /* renames of a stage to its place */
    const char *top;     /* what they must lie below */
    const char *scratch; /* the one path of the host that is mounted on */
    bool no_close_range; /* it was called, and failed */
    bool single_names;   /* relative paths must be single names */
};
extern struct fake_kernel fake;

/* Where a process that ends, or executes a program, comes back to: 1 exit, 2 execve. */
extern jmp_buf fake_exit;
#define FAKE_EXITED   1
#define FAKE_EXECUTED 2

/* A new run. The text is the rest of the input. */
void fake_start(const uint8_t *input, size_t size);
int fake_open(void);
void fake_check_fd(long fd);
uint32_t fake_open_count(void);
#define FAKE_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fake_abort(#condition, __FILE__, __LINE__);                                            \
        }                                                                                          \
    } while (0)
#define FAKE_NEVER(what) fake_abort("never: " what, __FILE__, __LINE__)
_Noreturn void fake_abort(const char *condition, const char *file, int line);

/* What only one target knows about: the other targets abort there. */
struct fake_hooks {
    long (*execve)(const char *path, char *const argv[], char *const envp[]);
    long (*sendmsg)(int fd, const void *bytes, size_t length, const int32_t *fds, size_t fd_count);
    long (*recvmsg)(int fd, void *header);
    long (*report)(int fd, const void *bytes, size_t length); /* write of a record */
    long (*wait4)(int *status);
    long (*kill)(int pid, int signal);
};
extern const struct fake_hooks fake_hooks;

#endif
