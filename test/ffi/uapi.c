/*
 * uapi.c - ffi/sys-types.h against the kernel's own headers, compiled and never run: ffi/check.sh.
 * A header that includes libc's cannot be here: only linux/ and asm/.
 */
#include <asm/poll.h>
#include <asm/siginfo.h>
#include <asm/signal.h>
#include <asm/statfs.h>
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/stat.h>
#include <linux/wait.h>

#include "sys-types.h"

#define SAME(name)      _Static_assert(K_##name == (name), #name)
#define SAME_SIZE(a, b) _Static_assert(sizeof(struct a) == sizeof(struct b), #a)
#define SAME_AT(a, x, b, y)                                                                        \
    _Static_assert(offsetof(struct a, x) == offsetof(struct b, y) &&                               \
                       sizeof(((struct a *)0)->x) == sizeof(((struct b *)0)->y),                   \
                   #a "." #x)

SAME(EPERM);
SAME(ENOENT);
SAME(EINTR);
SAME(EIO);
SAME(E2BIG);
SAME(EBADF);
SAME(ECHILD);
SAME(EAGAIN);
SAME(ENOMEM);
SAME(EACCES);
SAME(EBUSY);
SAME(EEXIST);
SAME(ENODEV);
SAME(ENOTDIR);
SAME(EISDIR);
SAME(EINVAL);
SAME(EMFILE);
SAME(EPIPE);
SAME(ENAMETOOLONG);
SAME(ENOSYS);
SAME(ENOTEMPTY);
SAME(ELOOP);
SAME(EPROTO);
SAME(EMSGSIZE);
SAME(EOPNOTSUPP);
SAME(ETIMEDOUT);
SAME(ESTALE);

SAME(O_RDONLY);
SAME(O_WRONLY);
SAME(O_RDWR);
SAME(O_CREAT);
SAME(O_EXCL);
SAME(O_NONBLOCK);
SAME(O_CLOEXEC);
SAME(O_PATH);
SAME(O_DIRECTORY);
SAME(O_NOFOLLOW);
SAME(AT_FDCWD);
SAME(AT_SYMLINK_NOFOLLOW);
SAME(AT_REMOVEDIR);
SAME(AT_EMPTY_PATH);
SAME(AT_RECURSIVE);
SAME(S_IFMT);
SAME(S_IFLNK);
SAME(S_IFREG);
SAME(S_IFDIR);
SAME(F_DUPFD_CLOEXEC);
SAME(F_SETFD);
SAME(F_SETFL);
SAME(F_ADD_SEALS);
SAME(MFD_CLOEXEC);
SAME(MFD_ALLOW_SEALING);
SAME(RENAME_NOREPLACE);
SAME(RENAME_EXCHANGE);
SAME(RESOLVE_NO_MAGICLINKS);
SAME(RESOLVE_NO_SYMLINKS);
SAME(RESOLVE_BENEATH);
SAME(RESOLVE_IN_ROOT);
_Static_assert(K_F_SEAL_ALL == (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), "seals");
SAME_SIZE(kernel_open_how, open_how);
SAME_AT(kernel_open_how, mode, open_how, mode);
SAME_AT(kernel_open_how, resolve, open_how, resolve);
SAME_SIZE(kernel_statx, statx);
SAME_AT(kernel_statx, mode, statx, stx_mode);
SAME_AT(kernel_statx, ino, statx, stx_ino);
SAME_AT(kernel_statx, size, statx, stx_size);
SAME_AT(kernel_statx, dev_major, statx, stx_dev_major);
SAME_AT(kernel_statx, dev_minor, statx, stx_dev_minor);
SAME_SIZE(kernel_statfs, statfs);
SAME_AT(kernel_statfs, bsize, statfs, f_bsize);
SAME_AT(kernel_statfs, bfree, statfs, f_bfree);
SAME_AT(kernel_statfs, ffree, statfs, f_ffree);

SAME(PROT_READ);
SAME(PROT_WRITE);
SAME(MAP_SHARED);
SAME(MAP_PRIVATE);
SAME(MAP_ANONYMOUS);
SAME(MREMAP_MAYMOVE);
SAME(CLONE_VM);
SAME(CLONE_FS);
SAME(CLONE_FILES);
SAME(CLONE_SIGHAND);
SAME(CLONE_THREAD);
SAME(CLONE_SYSVSEM);
SAME(CLONE_PIDFD);
SAME(CLONE_NEWNS);
SAME(CLONE_NEWCGROUP);
SAME(CLONE_NEWUTS);
SAME(CLONE_NEWIPC);
SAME(CLONE_NEWUSER);
SAME(CLONE_NEWPID);
SAME(CLONE_NEWNET);
SAME(CLONE_INTO_CGROUP);
SAME_SIZE(kernel_clone_args, clone_args);
SAME_AT(kernel_clone_args, pidfd, clone_args, pidfd);
SAME_AT(kernel_clone_args, exit_signal, clone_args, exit_signal);
SAME_AT(kernel_clone_args, stack_size, clone_args, stack_size);
SAME_AT(kernel_clone_args, cgroup, clone_args, cgroup);
_Static_assert(K_CLONE_ARGS_SIZE_VER0 == CLONE_ARGS_SIZE_VER0, "clone3(2)");
SAME(P_PIDFD);
SAME(WNOHANG);
SAME(WEXITED);
_Static_assert(K_WALL == __WALL, "wait(2)");
_Static_assert(sizeof(struct kernel_siginfo) == sizeof(siginfo_t), "siginfo_t");
_Static_assert(offsetof(struct kernel_siginfo, pid) == offsetof(siginfo_t, si_pid), "si_pid");
_Static_assert(offsetof(struct kernel_siginfo, status) == offsetof(siginfo_t, si_status), "status");
SAME_SIZE(kernel_rusage, rusage);
SAME_AT(kernel_rusage, max_rss_kib, rusage, ru_maxrss);
SAME_SIZE(kernel_rlimit, rlimit64);
_Static_assert(K_RLIMIT_CORE == RLIMIT_CORE, "getrlimit(2)");

SAME(SIGKILL);
SAME(SIGPIPE);
SAME(SIGTERM);
SAME(SIGCHLD);
SAME(SIG_SETMASK);
SAME_SIZE(kernel_sigaction, sigaction);
SAME_AT(kernel_sigaction, flags, sigaction, sa_flags);
_Static_assert(offsetof(struct kernel_sigaction, mask) == offsetof(struct sigaction, sa_mask), "m");

SAME(CAP_CHOWN);
SAME(CAP_DAC_OVERRIDE);
SAME(CAP_FOWNER);
SAME(CAP_KILL);
SAME(CAP_SETGID);
SAME(CAP_SETUID);
SAME(CAP_SETPCAP);
SAME(CAP_SYS_ADMIN);
SAME(CAP_SYS_RESOURCE);
SAME(CAP_SETFCAP);
_Static_assert(K_CAPABILITY_VERSION_3 == _LINUX_CAPABILITY_VERSION_3, "capget(2)");
SAME_SIZE(kernel_cap_header, __user_cap_header_struct);
SAME_SIZE(kernel_cap_sets, __user_cap_data_struct);
SAME_AT(kernel_cap_sets, permitted, __user_cap_data_struct, permitted);
SAME(PR_SET_DUMPABLE);
SAME(PR_SET_NAME);
SAME(PR_CAPBSET_DROP);
SAME(PR_SET_TIMERSLACK);
SAME(PR_SET_NO_NEW_PRIVS);
SAME(PR_CAP_AMBIENT);
SAME(PR_CAP_AMBIENT_RAISE);
SAME(KEYCTL_JOIN_SESSION_KEYRING);

SAME(SECCOMP_SET_MODE_FILTER);
SAME(SECCOMP_FILTER_FLAG_NEW_LISTENER);
SAME(SECCOMP_IOCTL_NOTIF_RECV);
_Static_assert(K_SECCOMP_GET_NOTIF_SIZES == SECCOMP_GET_NOTIF_SIZES, "seccomp(2)");
_Static_assert(K_SOCK_FILTER_SIZE == sizeof(struct sock_filter), "struct sock_filter");
SAME_SIZE(kernel_sock_fprog, sock_fprog);
SAME_AT(kernel_sock_fprog, filter, sock_fprog, filter);
SAME_SIZE(kernel_seccomp_notif, seccomp_notif);
SAME_AT(kernel_seccomp_notif, pid, seccomp_notif, pid);
SAME_AT(kernel_seccomp_notif, nr, seccomp_notif, data.nr);
SAME_AT(kernel_seccomp_notif, arch, seccomp_notif, data.arch);
SAME_SIZE(kernel_seccomp_notif_sizes, seccomp_notif_sizes);

SAME(MS_RDONLY);
SAME(MS_NOSUID);
SAME(MS_NODEV);
SAME(MS_NOEXEC);
SAME(MS_REMOUNT);
SAME(MS_NOATIME);
SAME(MS_NODIRATIME);
SAME(MS_BIND);
SAME(MS_REC);
SAME(MS_PRIVATE);
SAME(MS_RELATIME);
SAME(OPEN_TREE_CLONE);
SAME(MOVE_MOUNT_F_EMPTY_PATH);
SAME(MOVE_MOUNT_T_EMPTY_PATH);
SAME(MOUNT_ATTR_RDONLY);
SAME(MOUNT_ATTR_NOSUID);
SAME(MOUNT_ATTR_NODEV);
SAME(MOUNT_ATTR_NOEXEC);
_Static_assert(sizeof(struct kernel_mount_attr) == sizeof(struct mount_attr), "mount_setattr(2)");
SAME_AT(kernel_mount_attr, propagation, mount_attr, propagation);
SAME(POLLIN);
SAME(POLLOUT);
SAME(POLLERR);
SAME(POLLHUP);
SAME_SIZE(kernel_pollfd, pollfd);
