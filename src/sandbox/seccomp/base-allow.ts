/**
 * The calls that every program may make, grouped by what they are for. A call belongs here when
 * ordinary programs need it and it reaches nothing beyond the sandbox's own namespaces, tmpfs,
 * memory group and ids. Calls that need a capability stay harmless: the program has none.
 */

import type { SyscallName } from "./syscall-table.ts";

/** Calls with one reason. */
export interface AllowGroup {
  readonly why: string;
  readonly calls: readonly SyscallName[];
}

/** The base allow list. */
export const ALLOW_GROUPS: readonly AllowGroup[] = [
  {
    why: "descriptors: reading, writing, duplicating, waiting",
    calls: words(`
      read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close
      close_range dup dup2 dup3 fcntl flock pipe pipe2 poll ppoll select pselect6 epoll_create
      epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd
      signalfd4 sendfile splice tee copy_file_range`),
  },
  {
    why: "paths: what can be reached is what the sandbox's root holds",
    calls: words(`
      open openat openat2 creat stat lstat fstat newfstatat statx statfs fstatfs access faccessat
      faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir rename renameat
      renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat chmod fchmod
      fchmodat fchmodat2 chown fchown lchown fchownat umask truncate ftruncate fallocate fadvise64
      readahead fsync fdatasync sync_file_range utime utimes futimesat utimensat inotify_init
      inotify_init1 inotify_add_watch inotify_rm_watch`),
  },
  {
    why: "named pipes; device nodes are refused by the kernel, and the mounts are nodev",
    calls: words("mknod mknodat"),
  },
  {
    why: "extended attributes: cp, tar and git read them; trusted and security ones need capabilities",
    calls: words(`
      setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
      removexattr lremovexattr fremovexattr`),
  },
  {
    why: "memory, with just-in-time compilers (PROT_EXEC, protection keys) and locked pages",
    calls: words(`
      mmap munmap mremap mprotect brk madvise msync mincore mlock mlock2 mlockall munlock munlockall
      memfd_create pkey_alloc pkey_free pkey_mprotect membarrier`),
  },
  {
    why: "shadow stacks, which C libraries turn on where the machine has them (Linux 6.6)",
    calls: words("map_shadow_stack"),
  },
  {
    why: "processes and threads; clone has a rule of its own",
    calls: words(`
      fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid setsid getsid
      setpgid getpgid getpgrp set_tid_address set_robust_list get_robust_list rseq futex
      futex_waitv pidfd_open pidfd_send_signal arch_prctl`),
  },
  {
    why: "signals: the pid namespace holds the sandbox alone, and init has another id",
    calls: words(`
      kill tkill tgkill pause alarm rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend
      rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn sigaltstack`),
  },
  {
    why: "the kernel makes it by itself after a signal; refusing it breaks sleeping programs",
    calls: words("restart_syscall"),
  },
  {
    why: "made by the kernel's trampolines where the host's operator probes a library; else SIGILL",
    calls: words("uretprobe uprobe"),
  },
  {
    why: "clocks and timers; setting a clock has a rule of its own",
    calls: words(`
      time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep times getitimer
      setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
      timerfd_create timerfd_settime timerfd_gettime`),
  },
  {
    why: "scheduling, within the cgroup's share; real-time classes need a capability",
    calls: words(`
      sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
      sched_getscheduler sched_setscheduler sched_getattr sched_setattr sched_get_priority_min
      sched_get_priority_max sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set
      getcpu`),
  },
  {
    why: "ids and capabilities: programs drop what they have, which is nothing",
    calls: words(`
      getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
      setresuid setresgid setfsuid setfsgid setgroups capget capset`),
  },
  {
    why: "own limits and usage; prlimit64 has a rule of its own",
    calls: words("getrlimit setrlimit getrusage sysinfo uname getrandom"),
  },
  {
    why: "sockets that exist are AF_UNIX, because socket and socketpair have rules of their own",
    calls: words(`
      bind connect listen accept accept4 getsockname getpeername getsockopt shutdown sendto recvfrom
      sendmsg recvmsg sendmmsg recvmmsg`),
  },
  {
    why: "System V and POSIX queues, semaphores and memory: the ipc namespace is the sandbox's own",
    calls: words(`
      shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open
      mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`),
  },
  {
    why: "a program that restricts itself further (xz, agents' own sandboxes); made for the unprivileged",
    calls: words("landlock_create_ruleset landlock_add_rule landlock_restrict_self"),
  },
];

/** Splits a list of names. A test checks each against the tables. */
function words(text: string): readonly SyscallName[] {
  return text.trim().split(/\s+/) as SyscallName[];
}
