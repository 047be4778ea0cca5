/*
 * sys-types.h - the kernel's constants and structures that this tree uses, for 64-bit little
 * endian machines. Own copies for the same reason as sys-numbers.h; names are the kernel's with a
 * K_ or kernel_ prefix, so that a hosted build may include libc headers beside this one.
 */
#ifndef CPRG_SYS_TYPES_H
#define CPRG_SYS_TYPES_H

#include <stddef.h>
#include <stdint.h>

/*** Errors (asm-generic/errno*.h; the same on both machines) ***/

enum {
    K_EPERM = 1,
    K_ENOENT = 2,
    K_EINTR = 4,
    K_EIO = 5,
    K_E2BIG = 7,
    K_EBADF = 9,
    K_ECHILD = 10,
    K_EAGAIN = 11,
    K_ENOMEM = 12,
    K_EACCES = 13,
    K_EBUSY = 16,
    K_EEXIST = 17,
    K_ENODEV = 19,
    K_ENOTDIR = 20,
    K_EISDIR = 21,
    K_EINVAL = 22,
    K_EMFILE = 24,
    K_EPIPE = 32,
    K_ENAMETOOLONG = 36,
    K_ENOSYS = 38,
    K_ENOTEMPTY = 39,
    K_ELOOP = 40,
    K_EPROTO = 71,
    K_EMSGSIZE = 90,
    K_EOPNOTSUPP = 95,
    K_ETIMEDOUT = 110,
    K_ESTALE = 116,
};

/*** Files ***/

#define K_AT_FDCWD   (-100)
#define K_O_RDONLY   0
#define K_O_WRONLY   1
#define K_O_RDWR     2
#define K_O_CREAT    0100
#define K_O_EXCL     0200
#define K_O_NONBLOCK 04000
#define K_O_NOCTTY   0400
#define K_O_CLOEXEC  02000000
#define K_O_PATH     010000000
#if defined(__aarch64__) /* arm64 swaps these four in its asm/fcntl.h */
#define K_O_DIRECTORY 040000
#define K_O_NOFOLLOW  0100000
#else
#define K_O_DIRECTORY 0200000
#define K_O_NOFOLLOW  0400000
#endif

#define K_AT_SYMLINK_NOFOLLOW 0x100
#define K_AT_REMOVEDIR        0x200
#define K_AT_EMPTY_PATH       0x1000
#define K_AT_RECURSIVE        0x8000

#define K_S_IFMT   0170000u
#define K_S_IFSOCK 0140000u
#define K_S_IFLNK  0120000u
#define K_S_IFREG  0100000u
#define K_S_IFDIR  0040000u

#define K_F_DUPFD_CLOEXEC   1030
#define K_F_SETFD           2
#define K_F_SETFL           4
#define K_FD_CLOEXEC        1
#define K_F_ADD_SEALS       1033
#define K_F_DUPFD_CLOEXEC   1030
#define K_F_SEAL_ALL        0x000f /* seal, shrink, grow, write */
#define K_MFD_CLOEXEC       1u
#define K_MFD_ALLOW_SEALING 2u
#define K_MFD_EXEC          16u
#define K_LOCK_EX           2
#define K_LOCK_NB           4
#define K_RENAME_NOREPLACE  1u
#define K_RENAME_EXCHANGE   2u

#define K_RESOLVE_NO_MAGICLINKS 0x02u
#define K_RESOLVE_NO_SYMLINKS   0x04u
#define K_RESOLVE_BENEATH       0x08u
#define K_RESOLVE_IN_ROOT       0x10u

struct kernel_open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

/* statx(2), Linux 4.11: the one stat structure that is the same on both machines. */
#define K_STATX_BASIC 0x7ffu
struct kernel_statx {
    uint32_t mask;
    uint32_t blksize;
    uint64_t attributes;
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint16_t mode;
    uint16_t spare0;
    uint64_t ino;
    uint64_t size;
    uint64_t blocks;
    uint64_t attributes_mask;
    uint64_t times[8];
    uint32_t rdev_major;
    uint32_t rdev_minor;
    uint32_t dev_major;
    uint32_t dev_minor;
    uint64_t spare[14];
};
_Static_assert(sizeof(struct kernel_statx) == 256, "statx(2)");

struct kernel_statfs {
    int64_t type;
    int64_t bsize;
    uint64_t blocks;
    uint64_t bfree;
    uint64_t bavail;
    uint64_t files;
    uint64_t ffree;
    int32_t fsid[2];
    int64_t namelen;
    int64_t frsize;
    int64_t flags;
    int64_t spare[4];
};
_Static_assert(sizeof(struct kernel_statfs) == 120, "statfs(2)");

#define K_DT_UNKNOWN 0
#define K_DT_DIR     4
struct kernel_dirent {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

/*** Memory ***/

#define K_PROT_NONE      0
#define K_PROT_READ      1
#define K_PROT_WRITE     2
#define K_MAP_SHARED     1
#define K_MAP_PRIVATE    2
#define K_MAP_ANONYMOUS  0x20
#define K_MREMAP_MAYMOVE 1

/*** Processes ***/

#define K_CLONE_VM            0x00000100u
#define K_CLONE_FS            0x00000200u
#define K_CLONE_FILES         0x00000400u
#define K_CLONE_SIGHAND       0x00000800u
#define K_CLONE_THREAD        0x00010000u
#define K_CLONE_SYSVSEM       0x00040000u
#define K_CLONE_PIDFD         0x00001000u
#define K_CLONE_PARENT_SETTID 0x00100000u
#define K_CLONE_NEWNS         0x00020000u
#define K_CLONE_NEWCGROUP     0x02000000u
#define K_CLONE_NEWUTS        0x04000000u
#define K_CLONE_NEWIPC        0x08000000u
#define K_CLONE_NEWUSER       0x10000000u
#define K_CLONE_NEWPID        0x20000000u
#define K_CLONE_NEWNET        0x40000000u
#define K_CLONE_INTO_CGROUP   0x200000000ull
#define K_CLONE_NEWTIME       0x00000080u

struct kernel_clone_args {
    uint64_t flags;
    uint64_t pidfd;
    uint64_t child_tid;
    uint64_t parent_tid;
    uint64_t exit_signal;
    uint64_t stack;
    uint64_t stack_size;
    uint64_t tls;
    uint64_t set_tid;
    uint64_t set_tid_size;
    uint64_t cgroup; /* since 5.7: larger than what 5.3 to 5.4 know */
};
#define K_CLONE_ARGS_SIZE_VER0 64

#define K_P_ALL      0
#define K_P_PIDFD    3
#define K_WNOHANG    1
#define K_WEXITED    4
#define K_WNOWAIT    0x01000000
#define K_WALL       0x40000000 /* also children whose exit signal is not SIGCHLD */
#define K_CLD_EXITED 1

struct kernel_siginfo {
    int32_t signo;
    int32_t err;
    int32_t code;
    int32_t pad;
    int32_t pid;
    uint32_t uid;
    int32_t status;
    int32_t rest[25];
};
_Static_assert(sizeof(struct kernel_siginfo) == 128, "siginfo_t");

struct kernel_rusage {
    int64_t user_s;
    int64_t user_us;
    int64_t system_s;
    int64_t system_us;
    int64_t max_rss_kib;
    int64_t rest[13];
};
_Static_assert(sizeof(struct kernel_rusage) == 144, "getrusage(2)");

struct kernel_rlimit {
    uint64_t soft;
    uint64_t hard;
};
#define K_RLIMIT_CORE 4

struct kernel_timespec {
    int64_t seconds;
    int64_t nanoseconds;
};
#define K_CLOCK_MONOTONIC 1

/*** Signals ***/

#define K_SIGKILL      9
#define K_SIGPIPE      13
#define K_SIGTERM      15
#define K_SIGCHLD      17
#define K_SIGCONT      18
#define K_SIGSTOP      19
#define K_SIGNAL_COUNT 64
#define K_SIG_SETMASK  2
#define K_SFD_FLAGS    (K_O_NONBLOCK | K_O_CLOEXEC)

/* Both machines: handler, flags, restorer, mask; all zero is SIG_DFL. */
struct kernel_sigaction {
    uint64_t handler;
    uint64_t flags;
    uint64_t restorer;
    uint64_t mask;
};

/*** Identity ***/

#define K_CAP_CHOWN            0
#define K_CAP_DAC_OVERRIDE     1
#define K_CAP_FOWNER           3
#define K_CAP_KILL             5
#define K_CAP_SETGID           6
#define K_CAP_SETUID           7
#define K_CAP_SETPCAP          8
#define K_CAP_SYS_ADMIN        21
#define K_CAP_SYS_RESOURCE     24
#define K_CAP_SETFCAP          31
#define K_CAPABILITY_VERSION_3 0x20080522u

struct kernel_cap_header {
    uint32_t version;
    int32_t pid;
};
struct kernel_cap_sets { /* [0] capabilities 0 to 31, [1] 32 to 63 */
    uint32_t effective;
    uint32_t permitted;
    uint32_t inheritable;
};

#define K_PR_SET_DUMPABLE          4
#define K_PR_SET_NAME              15
#define K_PR_CAPBSET_READ          23
#define K_PR_CAPBSET_DROP          24
#define K_PR_SET_TIMERSLACK        29
#define K_PR_SET_CHILD_SUBREAPER   36
#define K_PR_SET_NO_NEW_PRIVS      38
#define K_PR_CAP_AMBIENT           47
#define K_PR_CAP_AMBIENT_RAISE     2
#define K_PR_CAP_AMBIENT_CLEAR_ALL 4

#define K_KEYCTL_JOIN_SESSION_KEYRING 1
#define K_IOPRIO_WHO_PROCESS          1

/*** Seccomp (linux/seccomp.h, linux/filter.h) ***/

#define K_SECCOMP_SET_MODE_FILTER          1u
#define K_SECCOMP_GET_NOTIF_SIZES          3u
#define K_SECCOMP_FILTER_FLAG_NEW_LISTENER 8u
#define K_SECCOMP_IOCTL_NOTIF_RECV         0xc0502100u
/* With the direction that Linux 5.0 gave it by mistake: the only one that all versions take. */
#define K_SECCOMP_IOCTL_NOTIF_ID_VALID 0x80082102u

struct kernel_sock_fprog {
    uint16_t count; /* of instructions */
    const void *filter;
};
#define K_SOCK_FILTER_SIZE 8u

struct kernel_seccomp_notif_sizes {
    uint16_t notif;
    uint16_t response;
    uint16_t data;
};
struct kernel_seccomp_notif {
    uint64_t id;
    uint32_t pid; /* the thread's, as the reader's pid namespace has it */
    uint32_t flags;
    int32_t nr;
    uint32_t arch;
    uint64_t instruction_pointer;
    uint64_t arguments[6];
};
_Static_assert(sizeof(struct kernel_seccomp_notif) == 80, "struct seccomp_notif");

/*** Mounts ***/

#define K_MS_RDONLY       1u
#define K_MS_NOSUID       2u
#define K_MS_NODEV        4u
#define K_MS_NOEXEC       8u
#define K_MS_REMOUNT      32u
#define K_MS_NOATIME      1024u
#define K_MS_NODIRATIME   2048u
#define K_MS_BIND         4096u
#define K_MS_REC          16384u
#define K_MS_PRIVATE      (1u << 18)
#define K_MS_RELATIME     (1u << 21)
#define K_MNT_DETACH      2
#define K_UMOUNT_NOFOLLOW 8

#define K_OPEN_TREE_CLONE         1u
#define K_OPEN_TREE_CLOEXEC       ((unsigned)K_O_CLOEXEC)
#define K_MOVE_MOUNT_F_EMPTY_PATH 0x04u
#define K_MOVE_MOUNT_T_EMPTY_PATH 0x40u

#define K_MOUNT_ATTR_RDONLY 1u
#define K_MOUNT_ATTR_NOSUID 2u
#define K_MOUNT_ATTR_NODEV  4u
#define K_MOUNT_ATTR_NOEXEC 8u
struct kernel_mount_attr {
    uint64_t set;
    uint64_t clear;
    uint64_t propagation;
    uint64_t userns_fd;
};

/*** Sockets and polling ***/

#define K_AF_UNIX          1
#define K_SOCK_SEQPACKET   5
#define K_SOL_SOCKET       1
#define K_SO_SNDBUF        7
#define K_SO_SNDBUFFORCE   32
#define K_SCM_RIGHTS       1
#define K_MSG_CTRUNC       0x8
#define K_MSG_TRUNC        0x20
#define K_MSG_DONTWAIT     0x40
#define K_MSG_NOSIGNAL     0x4000
#define K_MSG_CMSG_CLOEXEC 0x40000000

struct kernel_iovec {
    void *base;
    size_t length;
};
struct kernel_msghdr {
    void *name;
    uint32_t name_length;
    struct kernel_iovec *iov;
    size_t iov_count;
    void *control;
    size_t control_length;
    uint32_t flags;
};
struct kernel_cmsghdr {
    size_t length; /* of this header and what follows it */
    int32_t level;
    int32_t type;
};

#define K_POLLIN  1
#define K_POLLOUT 4
#define K_POLLERR 8
#define K_POLLHUP 16
struct kernel_pollfd {
    int32_t fd;
    int16_t events;
    int16_t revents;
};

/*** ioctl_tty(2), the same on both CPUs ***/

#define K_TIOCSCTTY   0x540Eu
#define K_TIOCSWINSZ  0x5414u
#define K_TIOCSPTLCK  0x40045431u
#define K_TIOCGPTPEER 0x5441u

struct kernel_winsize {
    uint16_t rows;
    uint16_t columns;
    uint16_t width;
    uint16_t height;
};

#endif
