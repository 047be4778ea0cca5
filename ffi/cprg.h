/*
 * cprg.h - the one interface between src/sandbox (JavaScript), libcprg.so (the shim in the
 * server's process) and cprg-init (process 1 of every sandbox).
 *
 * Everything here is fixed width, naturally aligned and little endian, because three parties read
 * it: the shim, init, and src/sandbox/layout.ts, which writes the same offsets from JavaScript. A
 * test compares the offsets on both sides; CPRG_ABI changes whenever one of them moves.
 *
 * README.md beside this file is the theory of operation.
 */
#ifndef CPRG_H
#define CPRG_H

#include <stdint.h>

#define CPRG_ABI    4u
#define CPRG_EXPORT __attribute__((visibility("default")))

/* Bounds. Each is enforced by whoever parses, and a request beyond one is an error, never cut. */
#define CPRG_CGROUPS_MAX     8u       /* cgroup.procs descriptors of one launch or exec */
#define CPRG_REQUEST_MAX     196608u  /* bytes of one control message */
#define CPRG_REQUEST_FDS_MAX 12u      /* descriptors of one control message */
#define CPRG_PLAN_MAX        512u     /* steps of a root plan */
#define CPRG_ARGS_MAX        4096u    /* argv and envp entries of one exec, together */
#define CPRG_RLIMITS_MAX     16u      /* rlimits of one exec */
#define CPRG_FILTER_MAX      32768u   /* bytes of one seccomp program: BPF_MAXINSNS of 8 */
#define CPRG_EXECS_MAX       256u     /* children init serves at once */
#define CPRG_PATH_MAX        4096u    /* bytes of a path, its NUL included */
#define CPRG_ENTRIES_MAX     1000000u /* entries of one archive stream */
#define CPRG_DEPTH_MAX       64u      /* directory depth of one archive stream */
/* Arguments, and variables, that a restarted server is given. */
#define CPRG_RESTART_STRINGS_MAX 65536

/* Descriptors of cprg-init when it starts; nothing else is open. */
#define CPRG_INIT_CONTROL_FD 3 /* SOCK_SEQPACKET to the server: requests in, descriptors out */
#define CPRG_INIT_REPORT_FD  4 /* pipe to the server: fixed-size struct cprg_report records */

/* Where a set-up failed. src/sandbox/steps.ts holds the name and the fix of each; a test compares.
 */
enum cprg_step {
    CPRG_STEP_NONE = 0,
    /* libcprg.so, in the server */
    CPRG_STEP_REQUEST = 1, /* the request itself is malformed or beyond a bound */
    CPRG_STEP_ARENA = 2,
    CPRG_STEP_CLONE = 3,
    CPRG_STEP_ID_MAP = 4, /* index: 0 setgroups, 1 uid_map, 2 gid_map (SELF: in cprg-init) */
    CPRG_STEP_GO = 5,
    /* the cloned child, before it executes cprg-init */
    CPRG_STEP_WAIT_MAP = 16,
    CPRG_STEP_CGROUP = 17,      /* index: which descriptor */
    CPRG_STEP_BECOME_ROOT = 18, /* index: 0 keeping capabilities, 1 (cprg-init) the ids */
    CPRG_STEP_DESCRIPTORS = 19,
    CPRG_STEP_EXEC_INIT = 20,
    /* cprg-init, before it is ready */
    CPRG_STEP_RESET = 32, /* umask, nice, affinity, session, keyring; index: reset.c, init.c */
    CPRG_STEP_PLAN = 33,  /* reading the plan */
    CPRG_STEP_UNSHARE = 34,
    CPRG_STEP_PRIVATE = 35, /* making the inherited mounts private */
    CPRG_STEP_ROOT_TMPFS = 36,
    CPRG_STEP_MOUNT = 37, /* index: which step of the plan */
    CPRG_STEP_PIVOT = 38,
    CPRG_STEP_READ_ONLY = 39,
    CPRG_STEP_HOSTNAME = 40,
    CPRG_STEP_CAPABILITIES = 41,
    CPRG_STEP_READY = 42,
    /* the child of one exec or transfer, before execve or its first byte */
    CPRG_STEP_FORK = 64,
    CPRG_STEP_EXEC_CGROUP = 65, /* index: which descriptor */
    CPRG_STEP_SESSION = 66,
    CPRG_STEP_STDIO = 67,  /* index: 0, 1 or 2 */
    CPRG_STEP_RLIMIT = 68, /* index: which of the request's */
    CPRG_STEP_IDENTITY = 69,
    CPRG_STEP_NO_NEW_PRIVS = 70,
    CPRG_STEP_DIRECTORY = 71,
    CPRG_STEP_EXECVE = 72,
    CPRG_STEP_SECCOMP = 73, /* comes between NO_NEW_PRIVS and DIRECTORY; index: 0 installing the
                               filter, 1 handing its listener to init, 2 it trapped that itself */
    /* a transfer while it runs; index: which entry of the stream */
    CPRG_STEP_STREAM = 80, /* the stream is malformed, beyond a bound, or was cut */
    CPRG_STEP_ENTRY = 81,  /* creating or reading one entry */
    CPRG_STEP_COMMIT = 82, /* renaming the staged result into place */
};

/* A failure of a call into the shim. err is an errno value, index as the step says. */
struct cprg_error {
    int32_t step;
    int32_t index;
    int32_t err;
    int32_t reserved;
};

/* ---- libcprg.so -------------------------------------------------------------------------- */

/* Sizes that JavaScript compares with its own before it makes any other call. */
struct cprg_abi {
    uint32_t abi;
    uint32_t error_size;
    uint32_t launch_size;
    uint32_t launched_size;
    uint32_t launch_job_size;
    uint32_t wait_size;
    uint32_t statfs_size;
    uint32_t request_size;
    uint32_t plan_size;
    uint32_t plan_step_size;
    uint32_t rlimit_size;
    uint32_t report_size;
    uint32_t entry_size;
};

/* How ids are mapped into the sandbox's user namespace. */
enum cprg_map {
    CPRG_MAP_NONE = 0,   /* no user namespace: the host forbids them and we are root */
    CPRG_MAP_PARENT = 1, /* the server maps 0 -> uid_init and id_inside -> uid_program */
    CPRG_MAP_SELF = 2,   /* the child maps 0 -> its own id (rootless: the only map it may write) */
};

struct cprg_launch {
    uint32_t size;         /* sizeof(struct cprg_launch) */
    uint32_t map;          /* enum cprg_map */
    int32_t init_fd;       /* cprg-init, a sealed memfd or a file */
    int32_t control_fd;    /* init's end of the control socket */
    int32_t report_fd;     /* write end of the report pipe */
    int32_t cgroup_dir_fd; /* cgroup v2 directory for CLONE_INTO_CGROUP, or -1 */
    uint32_t cgroup_count;
    int32_t cgroup_fds[CPRG_CGROUPS_MAX]; /* open cgroup.procs; the child writes "0" to each */
    uint32_t uid_init;                    /* host ids, for CPRG_MAP_PARENT */
    uint32_t gid_init;
    uint32_t uid_program;
    uint32_t gid_program;
    uint32_t id_inside; /* the program's uid and gid inside */
};

struct cprg_launched {
    int32_t pid;    /* host pid of process 1 */
    int32_t pidfd;  /* close-on-exec */
    uint64_t arena; /* memory the child still uses: give it to cprg_launch_end() after the first
                       report or the end of the report pipe, whichever comes first */
};

/* A launch that another thread does: it reads and writes this memory until is_done. */
struct cprg_launch_job {
    struct cprg_launch request;
    struct cprg_launched launched;
    struct cprg_error error;
    int32_t result; /* what cprg_launch() returned */
    uint32_t is_done;
};

struct cprg_wait {
    int32_t exited; /* 0: still alive, the other fields mean nothing */
    int32_t code;   /* exit code, or -1 */
    int32_t signal; /* signal that ended it, or 0 */
    int32_t reserved;
};

struct cprg_statfs {
    uint64_t block_bytes;
    uint64_t blocks;
    uint64_t blocks_free;
    uint64_t inodes;
    uint64_t inodes_free;
};

/* All return 0 or a value >= 0 on success and -errno on failure, unless said otherwise. */
CPRG_EXPORT int32_t cprg_abi(struct cprg_abi *out);
/* A sealed (no write, grow, shrink), executable, close-on-exec memfd with these bytes. */
CPRG_EXPORT int32_t cprg_memfd(const char *name, const void *bytes, uint64_t length);
/* Starts process 1. On failure nothing is left running; *error says where it failed. */
CPRG_EXPORT int32_t cprg_launch(const struct cprg_launch *request, struct cprg_launched *out,
                                struct cprg_error *error);
CPRG_EXPORT int32_t cprg_launch_end(uint64_t arena);
/* Starts a thread that does launches, one after the other, as long as this process lives; returns
   the descriptor that asks it. Call it once. On failure *error says where. */
CPRG_EXPORT int32_t cprg_launcher(struct cprg_error *error);
/* Has that thread call cprg_launch(); never blocks (-EAGAIN). A CPRG_REPORT_LAUNCHED on the report
   pipe says that the job is done. Until then the job stays where it is, and its descriptors open.
 */
CPRG_EXPORT int32_t cprg_launch_later(int32_t launcher, struct cprg_launch_job *job);
/* 1 once the job is done, and 0 before. */
CPRG_EXPORT int32_t cprg_launch_done(const struct cprg_launch_job *job);
/* socketpair(AF_UNIX, SOCK_SEQPACKET), close-on-exec, with room for CPRG_REQUEST_MAX. */
CPRG_EXPORT int32_t cprg_socketpair(int32_t fds[2]);
/* pipe2(O_CLOEXEC); nonblock: bit 0 read end, bit 1 write end. */
CPRG_EXPORT int32_t cprg_pipe(int32_t fds[2], uint32_t nonblock);
/* One message with descriptors; never blocks (-EAGAIN). */
CPRG_EXPORT int32_t cprg_send(int32_t socket, const void *bytes, uint32_t length,
                              const int32_t *fds, uint32_t fd_count);
/* One message; returns its length, sets *fd_count. Received descriptors are close-on-exec. */
CPRG_EXPORT int32_t cprg_receive(int32_t socket, void *bytes, uint32_t capacity, int32_t *fds,
                                 uint32_t fd_capacity, uint32_t *fd_count);
/* waitid(P_PIDFD, WEXITED | WNOHANG): reaps process 1; every process of its namespace is then gone.
 */
CPRG_EXPORT int32_t cprg_reap(int32_t pidfd, struct cprg_wait *out);
/* pidfd_send_signal. */
CPRG_EXPORT int32_t cprg_signal(int32_t pidfd, int32_t signal);
/* pidfd_open(pid): to signal a process read from cgroup.procs without a pid race. */
CPRG_EXPORT int32_t cprg_pidfd(int32_t pid);
/* Opens (creating, 0600) and flocks a file, exclusive and without waiting: -EWOULDBLOCK if held. */
CPRG_EXPORT int32_t cprg_lock(const char *path);
CPRG_EXPORT int32_t cprg_statfs(int32_t fd, struct cprg_statfs *out);
/* openat2 with RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS; bounded retry on
   EAGAIN; a walk of O_NOFOLLOW openat where the kernel lacks openat2. */
CPRG_EXPORT int32_t cprg_open_beneath(int32_t dirfd, const char *path, int32_t flags,
                                      uint32_t mode);
/* The same, but follows symbolic links that stay beneath dirfd (-EXDEV for those that do not, and
   for
   ".." that leads out); the last component only without O_NOFOLLOW. Without openat2 no link at all.
 */
CPRG_EXPORT int32_t cprg_open_within(int32_t dirfd, const char *path, int32_t flags, uint32_t mode);
/* Non-blocking read: bytes read, 0 at the end, -EAGAIN. Reads until the buffer is full or the pipe
   empty. */
CPRG_EXPORT int32_t cprg_read(int32_t fd, void *bytes, uint32_t capacity);
/* 1 when a read of `fd` would not wait: bytes are there, or the end (POLLHUP), or an error; else 0.
 */
CPRG_EXPORT int32_t cprg_readable(int32_t fd);
/* A new pseudo-terminal of the devpts instance at `devpts`, an O_PATH directory, with a size in
   characters: fds are the master without blocking, the same again, and the terminal. Neither
   becomes anyone's controlling terminal. */
CPRG_EXPORT int32_t cprg_terminal(int32_t devpts, uint32_t columns, uint32_t rows, int32_t fds[3]);
/* TIOCSWINSZ on a master; the foreground group gets SIGWINCH. */
CPRG_EXPORT int32_t cprg_resize(int32_t master, uint32_t columns, uint32_t rows);
/* PR_SET_DUMPABLE 0 and RLIMIT_CORE 1, which is no dump, not even to a pipe: core(5). */
CPRG_EXPORT int32_t cprg_harden(void);
/* Cuts the calling thread's capabilities down to those of `keep` (bit n: number n) that it has: the
   bounding set (-EPERM without CAP_SETPCAP, unless nothing is to be cut from it), permitted and
   effective; inheritable and ambient become empty; no_new_privs. Other threads keep theirs: call
   cprg_restart() next, or end the process. Never undone, and not whole when it fails. */
CPRG_EXPORT int32_t cprg_reduce(uint64_t keep);
/* execve("/proc/self/exe"), which ends every other thread. Both blocks are strings that end in NUL,
   one after the other, as /proc/self/cmdline and /proc/self/environ have them. The descriptors stay
   open, whether close-on-exec or not. Returns only when it fails. */
CPRG_EXPORT int32_t cprg_restart(char *args, uint32_t args_length, char *env, uint32_t env_length,
                                 const int32_t *fds, uint32_t fd_count);

/* ---- messages to cprg-init ---------------------------------------------------------------- */

/*
 * The first message is the plan, every later one a request. A message is its header followed by
 * the bytes that its offsets point into (from the start of the message); strings end in NUL.
 */

enum cprg_op {
    CPRG_OP_DIRECTORY = 1, /* target, mode */
    CPRG_OP_FILE = 2,      /* target, mode; source: the content (source_length bytes) */
    CPRG_OP_LINK = 3,      /* target -> source */
    CPRG_OP_BIND = 4,      /* source (host path) on target, made if missing; flags */
    CPRG_OP_PROC = 5,      /* fresh proc on target */
    CPRG_OP_MASK = 6,      /* hides target (in the new root): /dev/null on a file, empty read-only
                              tmpfs on a directory; a missing target is no error */
    CPRG_OP_DATA = 7,      /* the writable tmpfs, at most one: source holds its mount options (size,
                              nr_inodes); nothing of it but its binds is ever visible; no target */
    CPRG_OP_DATA_BIND = 8, /* a directory `source` made in the data tmpfs (mode, owned by the
                              program), bound on target */
    CPRG_OP_DEVPTS = 10,   /* a fresh devpts on target, whose terminals are the program's; source:
                              further mount options. Its directory goes to the server with READY */
    CPRG_OP_READ_ONLY = 9, /* makes the existing subtree of target read-only (a bind of itself) */
};

enum cprg_bind {
    CPRG_BIND_READ_ONLY = 1u,
    CPRG_BIND_NOEXEC = 2u,
    CPRG_BIND_OPTIONAL = 4u, /* a missing source is no error */
    CPRG_BIND_DEVICE = 8u,   /* keeps device access; without it nodev */
};

struct cprg_plan_step {
    uint32_t op;
    uint32_t flags;
    uint32_t mode;
    uint32_t source; /* offset, 0: none */
    uint32_t source_length;
    uint32_t target; /* offset; absolute in the new root, no "." or "..", no slash at the end */
};

struct cprg_plan {
    uint32_t size; /* sizeof(struct cprg_plan) */
    uint32_t abi;
    uint32_t unshare;    /* CLONE_NEW* flags that init unshares after it is in its cgroups:
                            NEWNS always, NEWNET NEWIPC NEWUTS NEWCGROUP as wanted */
    uint32_t id_program; /* the program's uid and gid inside */
    uint32_t id_map;     /* enum cprg_map that was used */
    uint32_t step_count;
    uint32_t steps;        /* offset of struct cprg_plan_step[step_count] */
    uint32_t scratch;      /* offset: host directory on which the root tmpfs is mounted */
    uint32_t root_options; /* offset: mount options of the root tmpfs */
    uint32_t hostname;     /* offset */
    uint32_t workspace;    /* offset: directory whose descriptor goes to the server with READY */
    uint32_t reserved;
};

enum cprg_request_type {
    CPRG_REQUEST_EXEC = 1,
    CPRG_REQUEST_SIGNAL = 2, /* value: signal, sent to the exec's main process */
    CPRG_REQUEST_PACK = 3,   /* path read and written to descriptor 0 as an archive stream */
    CPRG_REQUEST_UNPACK = 4, /* descriptor 0 read as an archive stream, made beneath path */
    CPRG_REQUEST_KILL = 5,   /* SIGKILL to all that descends from the exec's program, to that
                                itself, and to what ended execs left; others go on. No answer */
    CPRG_REQUEST_REMOVE = 6, /* path removed, with all that is beneath it; a transfer */
};

enum cprg_request_flags {
    CPRG_FLAG_NULL_STDIN = 1u, /* stdin is /dev/null; then descriptor 0 is stdout, 1 stderr */
    CPRG_FLAG_MERGE = 2u,      /* UNPACK: into the existing directory path, entry by entry (each
                                  staged and renamed); without it path itself is replaced at once */
    CPRG_FLAG_KEEPER = 4u,     /* EXEC: for a program that is in no cgroup of its own. A keeper
                                  adopts what it leaves, so that KILL finds it */
    CPRG_FLAG_TERMINAL = 8u,   /* EXEC: stdin is a terminal, which becomes the controlling one */
};

struct cprg_rlimit {
    uint32_t resource;
    uint32_t reserved;
    uint64_t soft;
    uint64_t hard; /* both are lowered to the current hard limit, never raised */
};

/*
 * The filter of an exec: two seccomp programs (struct sock_filter[]), made from the same rules.
 * `notify` asks a listener where `kill` kills the process. An exec gets the first that the kernel
 * takes: notify, if the request has it, or else kill; with neither it has no filter. A request that
 * has notify has kill.
 */
enum cprg_filter {
    CPRG_FILTER_NONE = 0,
    CPRG_FILTER_NOTIFY = 1, /* what a filter traps is reported, and never returns */
    CPRG_FILTER_KILL = 2,   /* what a filter traps ends its process with SIGSYS */
};

struct cprg_request {
    uint32_t size; /* sizeof(struct cprg_request) */
    uint32_t type;
    uint32_t id; /* chosen by the server, unique among the execs that live; in every report */
    uint32_t flags;
    int32_t value;
    uint32_t cgroup_count; /* the last cgroup_count descriptors are cgroup.procs */
    uint32_t umask;
    int32_t oom_score_adj; /* raised to this, never lowered; process 1 and what follows with it */
    uint32_t rlimit_count;
    uint32_t rlimits; /* offset of struct cprg_rlimit[rlimit_count] */
    uint32_t path;    /* offset: working directory, or the path of a transfer */
    uint32_t argc;
    uint32_t argv; /* offset of uint32_t[argc], offsets of strings; argv[0] is a path or a name
                      looked up in PATH of envp */
    uint32_t envc;
    uint32_t envp;          /* offset of uint32_t[envc] */
    uint32_t notify;        /* EXEC: offset of the notify program */
    uint32_t notify_length; /* its bytes, 0: none */
    uint32_t kill;          /* EXEC: offset of the kill program */
    uint32_t kill_length;
    uint32_t reserved;
};
/* Descriptors of an EXEC message, in order: stdin unless CPRG_FLAG_NULL_STDIN, stdout, stderr,
   then cgroup.procs; of PACK and UNPACK: the stream, then cgroup.procs; of REMOVE: cgroup.procs. */

enum cprg_report_type {
    CPRG_REPORT_READY = 1,        /* the workspace descriptor waits on the control socket, and with
                                     it the devpts of the plan, if it has one */
    CPRG_REPORT_SETUP_FAILED = 2, /* step, index, err; init exits */
    CPRG_REPORT_STARTED = 3,      /* execve succeeded, or the transfer begins; code: cprg_filter,
                                     entries: pid of its keeper, 0: none */
    CPRG_REPORT_EXEC_FAILED = 4,  /* step, index, err; the exec never ran */
    CPRG_REPORT_EXITED = 5,       /* code or signal, usage: from a real wait4 */
    CPRG_REPORT_TRANSFERRED = 6,  /* entries, bytes; or step, index, err */
    CPRG_REPORT_VIOLATION = 7,    /* code: seccomp_data.nr, entries: seccomp_data.arch, pid: the
                                     thread; once, between STARTED and EXITED. init has killed the
                                     thread's process and the main one, the server kills the rest */
    CPRG_REPORT_LAUNCHED = 8,     /* by the launcher, not by init: its job is done. May come after
                                     the first record of the process that it started */
};

struct cprg_report {
    uint32_t type;
    uint32_t id;
    int32_t step;
    int32_t index;
    int32_t err;
    int32_t code;   /* exit code, -1 when ended by a signal */
    int32_t signal; /* 0 when it exited */
    int32_t pid;    /* inside the sandbox */
    uint64_t user_us;
    uint64_t system_us;
    uint64_t max_rss_bytes;
    uint64_t at_ns; /* CLOCK_MONOTONIC when it happened */
    uint64_t entries;
    uint64_t bytes;
};

/* ---- archive stream ----------------------------------------------------------------------- */

#define CPRG_ENTRY_MAGIC 0x41525043u /* "CPRA" */

enum cprg_entry_type {
    CPRG_ENTRY_FILE = 1,
    CPRG_ENTRY_DIRECTORY = 2,
    CPRG_ENTRY_LINK = 3, /* content: the target */
    CPRG_ENTRY_END = 4,  /* last; a stream without it was cut */
};

/*
 * An entry is this header, path_length bytes of path (relative, no "..", no "//", no leading or
 * trailing "/", no NUL; empty for the single file, link or directory that path itself names), then
 * size bytes of content. Directories come before what is in them; their modes are set last.
 */
struct cprg_entry {
    uint32_t magic;
    uint32_t type;
    uint32_t mode; /* permission bits; setuid, setgid and sticky are dropped */
    uint32_t path_length;
    uint64_t size;
};

_Static_assert(sizeof(struct cprg_error) == 16, "layout.ts");
_Static_assert(sizeof(struct cprg_abi) == 52, "layout.ts");
_Static_assert(sizeof(struct cprg_launch) == 80, "layout.ts");
_Static_assert(sizeof(struct cprg_launched) == 16, "layout.ts");
_Static_assert(sizeof(struct cprg_launch_job) == 120, "layout.ts");
_Static_assert(sizeof(struct cprg_wait) == 16, "layout.ts");
_Static_assert(sizeof(struct cprg_statfs) == 40, "layout.ts");
_Static_assert(sizeof(struct cprg_plan_step) == 24, "layout.ts");
_Static_assert(sizeof(struct cprg_plan) == 48, "layout.ts");
_Static_assert(sizeof(struct cprg_rlimit) == 24, "layout.ts");
_Static_assert(sizeof(struct cprg_request) == 80, "layout.ts");
_Static_assert(sizeof(struct cprg_report) == 80, "layout.ts");
_Static_assert(sizeof(struct cprg_entry) == 24, "layout.ts");

#endif
