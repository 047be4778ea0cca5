/*
 * serve.c - see serve.h.
 *
 * A child's status socket is close-on-exec. Its end without a record means that execve succeeded -
 * if the child got as far as execve, which it notes in a page that it shares with init, so that a
 * child killed earlier is not taken for a program. What a child reports itself (a failed exec, a
 * finished transfer) is kept until it is reaped: when the server hears of an end, the id is free.
 *
 * An exec is cloned with init's memory (CLONE_VM), like init out of the server: fork(2) copies page
 * tables and then faults on each page, which here costs as much as execve itself. What the child
 * uses is its own exec_start, busy until the socket ends: by then it has other memory or none. Two
 * kinds of child are forked instead: transfers, which keep running this program, and an exec while
 * SERVE_SHARED others are starting, so that none has to wait.
 *
 * The status connection is a socket and no pipe because it also carries the listener of the exec's
 * filter. A listener stays open until all processes under its filter are gone, also past the end of
 * the main one: while it is open a call that was trapped never returns.
 */
#include "serve.h"

#include "keeper.h"
#include "notify.h"
#include "report.h"
#include "request.h"
#include "sweep.h"
#include "sys-clone.h"
#include "text.h"
#include "transfer.h"

#define SERVE_SHARED 4u
/* Ends taken at once: a program that makes orphans as fast as they are reaped must not keep init
   from the server. */
#define SERVE_REAPS_MAX 64u

struct served {
    struct exec_start *busy; /* memory that the child still shares, or NULL */
    struct cprg_report outcome;
    int32_t pid; /* 0: the entry is free, but for a listener */
    uint32_t id;
    int status_fd; /* init's end, -1 when it has ended */
    int listener;  /* of its filter; 0, which is never one, for none */
    bool transfer;
    bool started;
    bool has_outcome;
    bool has_violated;
    bool is_reaped;   /* pid is nobody's any more */
    int32_t program;  /* pid of the program, once it has started */
    bool is_kept;     /* pid is a keeper's: serve_programs has the program's */
    uint64_t user_us; /* what a keeper that was killed had used */
    uint64_t system_us;
};

/* init's own state, zero at start: one process, one thread. */
static struct served serve_table[CPRG_EXECS_MAX];
static volatile uint8_t *serve_reached;  /* [CPRG_EXECS_MAX], shared with the children */
static volatile int32_t *serve_programs; /* likewise: pid of a program that has a keeper, or 0 */
static struct exec_start serve_starts[SERVE_SHARED + 1]; /* the last one never is shared */
static bool serve_start_busy[SERVE_SHARED];
static uint32_t serve_id_program;
static bool serve_map_self;
static bool serve_can_notify;
static int32_t serve_oom_score; /* what init has been raised to */

/*** Reports ***/

static void serve_report(struct cprg_report *report, uint32_t id) {
    report->id = id;
    if (report_write(CPRG_INIT_REPORT_FD, report) < 0) {
        sys_exit(0); /* the server is gone, and so shall be the sandbox */
    }
}

static void serve_refuse(uint32_t id, enum cprg_step step, int error) {
    struct cprg_report report = report_failure(CPRG_REPORT_EXEC_FAILED, step, 0, error);
    serve_report(&report, id);
}

/* The pid of the main process: 0 or less when that is dead, or no longer known. */
static int32_t serve_program(const struct served *entry) {
    return entry->is_kept ? serve_programs[entry - serve_table] : entry->pid;
}

static void serve_signal(const struct served *entry, int signal) {
    int32_t pid = serve_program(entry);
    if (pid > 0) {
        (void)sys_kill(pid, signal);
    }
}

static void serve_started(struct served *entry) {
    if (entry->started) {
        return;
    }
    struct cprg_report report = report_make(CPRG_REPORT_STARTED, 0);
    report.code = EXEC_FILTER_OF(serve_reached[entry - serve_table]);
    entry->program = serve_program(entry);
    report.pid = entry->program;
    report.entries = entry->is_kept ? (uint64_t)entry->pid : 0;
    entry->started = true;
    serve_report(&report, entry->id);
}

/*** Starting ***/

int serve_start(uint32_t id_program, bool map_self) {
    const size_t pids = CPRG_EXECS_MAX * sizeof(int32_t);
    long page =
        sys_mmap(pids + CPRG_EXECS_MAX, K_PROT_READ | K_PROT_WRITE, K_MAP_SHARED | K_MAP_ANONYMOUS);
    serve_id_program = id_program;
    serve_map_self = map_self;
    serve_can_notify = notify_is_possible();
    serve_programs = (volatile int32_t *)(uintptr_t)page;
    serve_reached = (volatile uint8_t *)(uintptr_t)page + pids;
    return page < 0 ? (int)page : 0;
}

struct exec_start *serve_buffer(void) {
    uint32_t i = 0;
    while (i < SERVE_SHARED && serve_start_busy[i]) {
        i++;
    }
    return &serve_starts[i];
}

static struct served *serve_find(uint32_t id) {
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid != 0 && serve_table[i].id == id) {
            return &serve_table[i];
        }
    }
    return NULL;
}

static void serve_close_listener(struct served *entry) {
    (void)sys_close(entry->listener);
    entry->listener = 0;
}

/* Last, one whose listener is still open although its main process has ended: before Linux 5.9 a
   listener does not say that nothing is left under its filter. */
static struct served *serve_free_entry(void) {
    struct served *listening = NULL;
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid != 0) {
            continue;
        }
        if (serve_table[i].listener == 0) {
            return &serve_table[i];
        }
        listening = &serve_table[i];
    }
    if (listening != NULL) {
        serve_close_listener(listening);
    }
    return listening;
}

/*
 * proc_pid_oom_score_adj(5): raising is free, lowering would need a right on the host. The kernel
 * gives processes that share memory one value (fs/proc/base.c, __set_oom_adj), so a child could not
 * have another than init; init is raised, and all that follows starts there. Among processes of
 * equal value the larger is killed, and none is smaller than init.
 */
static int serve_raise_oom_score(int32_t wanted) {
    char text[24] = "";
    const char *end;
    if (wanted <= serve_oom_score) {
        return 0;
    }
    int fd = sys_openat(K_AT_FDCWD, "/proc/self/oom_score_adj", K_O_RDWR | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    long result = sys_read(fd, text, sizeof text - 1);
    if (result > 0 && text_read_number(text, &end) < (uint64_t)wanted) { /* "-5" reads as 0 */
        size_t length = text_append_number(text, sizeof text, 0, (uint64_t)wanted);
        result = sys_write(fd, text, length);
    }
    (void)sys_close(fd);
    if (result < 0) {
        return (int)result;
    }
    serve_oom_score = wanted;
    return 0;
}

_Noreturn static void serve_shared_child(void *start) {
    exec_child(start);
}

static int serve_clone_shared(struct exec_start *start) {
    const long arguments[5] = {K_CLONE_VM | K_SIGCHLD, SYS_P(start->stack + sizeof start->stack), 0,
                               0, 0};
    return (int)sys_clone_call(NR_clone, arguments, serve_shared_child, start);
}

static int serve_fork(struct exec_start *start, bool transfer, volatile int32_t *program) {
    int pid = sys_fork();
    if (pid != 0) {
        return pid;
    }
    if (program != NULL) {
        keeper_run(start, program);
    }
    if (transfer) {
        transfer_child(start);
    }
    exec_child(start); /* in this process it is a copy of its own */
}

static int serve_child(struct exec_start *start, struct served *entry) {
    uint32_t slot = (uint32_t)(entry - serve_table);
    uint32_t place = (uint32_t)(start - serve_starts);
    bool transfer = start->request.head->type != CPRG_REQUEST_EXEC;
    bool kept = !transfer && (start->request.head->flags & CPRG_FLAG_KEEPER) != 0;
    bool shared = !transfer && !kept && place < SERVE_SHARED;
    int status[2] = {-1, -1};
    int result = sys_socketpair(K_AF_UNIX, K_SOCK_SEQPACKET | K_O_CLOEXEC, status);
    if (result < 0) {
        return result;
    }
    serve_reached[slot] = 0;
    serve_programs[slot] = 0;
    start->context = (struct exec_context){serve_id_program, serve_map_self, serve_can_notify,
                                           status[1], &serve_reached[slot]};
    int pid = shared ? serve_clone_shared(start)
                     : serve_fork(start, transfer, kept ? &serve_programs[slot] : NULL);
    (void)sys_close(status[1]);
    if (pid < 0) {
        (void)sys_close(status[0]);
        return pid;
    }
    *entry = (struct served){.pid = pid,
                             .id = start->request.head->id,
                             .status_fd = status[0],
                             .busy = shared ? start : NULL,
                             .transfer = transfer,
                             .is_kept = kept};
    if (shared) {
        serve_start_busy[place] = true;
    }
    return 0;
}

static void serve_run(struct exec_start *start) {
    uint32_t id = start->request.head->id;
    if (serve_find(id) != NULL) {
        serve_refuse(id, CPRG_STEP_REQUEST, K_EEXIST);
        return;
    }
    struct served *entry = serve_free_entry();
    int result = serve_raise_oom_score(start->request.head->oom_score_adj);
    if (result < 0) {
        serve_refuse(id, CPRG_STEP_SESSION, result);
        return;
    }
    result = entry == NULL ? -K_EAGAIN : serve_child(start, entry);
    if (result < 0) {
        serve_refuse(id, CPRG_STEP_FORK, result);
    }
}

/* Keepers, transfers and programs of the others go on. */
static void serve_kill(uint32_t id) {
    static int32_t spared[CPRG_EXECS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid != 0 && serve_table[i].id != id) {
            spared[count++] = serve_table[i].pid;
        }
    }
    sweep_kill(spared, count);
}

void serve_message(struct exec_start *start, uint32_t length) {
    struct request *request = &start->request;
    /* The child may be done with `start` before this function is, but nobody else uses it. */
    const struct channel_message received = start->received;
    int result = request_check(request, start->message, length, &start->received);
    if (result < 0) {
        serve_refuse(request->head == NULL ? 0 : request->head->id, CPRG_STEP_REQUEST, result);
    } else if (request->head->type == CPRG_REQUEST_SIGNAL) {
        const struct served *entry = serve_find(request->head->id);
        if (entry != NULL) { /* it may have ended meanwhile: no error */
            serve_signal(entry, request->head->value);
        }
    } else if (request->head->type == CPRG_REQUEST_KILL) {
        serve_kill(request->head->id);
    } else {
        serve_run(start);
    }
    channel_close_fds(&received);
}

/*** Status sockets and listeners ***/

/* The entry of each descriptor that serve_poll() listed. */
static uint16_t serve_polled[SERVE_FDS_MAX];

uint32_t serve_poll(struct kernel_pollfd *fds) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        const struct served *entry = &serve_table[i];
        if (entry->pid != 0 && entry->status_fd >= 0) {
            serve_polled[count] = (uint16_t)i;
            fds[count++] = (struct kernel_pollfd){entry->status_fd, K_POLLIN, 0};
        }
        if (entry->listener != 0) {
            /* A violation is reported once, and never after the end. */
            bool wanted = entry->pid != 0 && !entry->has_violated;
            serve_polled[count] = (uint16_t)i;
            fds[count++] = (struct kernel_pollfd){entry->listener, wanted ? K_POLLIN : 0, 0};
        }
    }
    return count;
}

/* A listener that got lost on the way (no descriptor left here) would let trapped calls return. */
static void serve_take_listener(struct served *entry, const struct channel_message *received) {
    if (received->fd_count == 1) {
        entry->listener = received->fds[0];
        return;
    }
    entry->outcome = report_failure(CPRG_REPORT_EXEC_FAILED, CPRG_STEP_SECCOMP, 1, K_EMFILE);
    entry->has_outcome = true;
    if (!entry->is_reaped) {
        serve_signal(entry, K_SIGKILL);
    }
}

/* Reads one message or the end. Only called when there is one of them: either poll said so, or the
   only writer is dead. */
static void serve_read_status(struct served *entry) {
    struct cprg_report record = {0};
    struct channel_message received;
    long count = channel_receive(entry->status_fd, &record, sizeof record, &received);
    if (count == -K_EAGAIN) {
        return;
    }
    if (count == 1) {
        serve_take_listener(entry, &received);
        return;
    }
    if (count == (long)sizeof record) {
        if (record.type == CPRG_REPORT_STARTED) {
            serve_started(entry);
        } else {
            entry->outcome = record;
            entry->has_outcome = true;
        }
        return;
    }
    (void)sys_close(entry->status_fd);
    entry->status_fd = -1;
    if (entry->busy != NULL) {
        serve_start_busy[entry->busy - serve_starts] = false;
        entry->busy = NULL;
    }
    if (!entry->transfer && !entry->has_outcome && serve_reached[entry - serve_table] != 0) {
        serve_started(entry);
    }
}

/* The filter traps what the child does before execve: no filter of the server's own does. */
static void serve_trapped_itself(struct served *entry) {
    entry->has_violated = true;
    if (!entry->has_outcome) {
        entry->outcome = report_failure(CPRG_REPORT_EXEC_FAILED, CPRG_STEP_SECCOMP, 2, K_EPERM);
        entry->has_outcome = true;
    }
    serve_signal(entry, K_SIGKILL);
}

/* Reports the first violation of an exec and kills what made it: the trapped thread's process, and
   the main one. Neither number can be another process's: one waits in its call, the other is not
   reaped. Everything else of the exec is the server's to kill, which knows its group. */
static void serve_violation(struct served *entry) {
    struct notify_call call = {0, 0, 0, false};
    if (!entry->started && entry->status_fd >= 0) {
        serve_read_status(entry); /* its end may have come after poll had looked there */
    }
    /* A keeper can be late in closing its copy of the socket: past its note, the child calls
       nothing but execve. */
    bool noted = entry->started || (entry->is_kept && serve_reached[entry - serve_table] != 0);
    bool received = noted && notify_receive(entry->listener, &call);
    if (received && call.nr != NR_execve) {
        serve_started(entry);
    }
    if (!entry->started) {
        serve_trapped_itself(entry);
        return;
    }
    if (!received) {
        return;
    }
    struct cprg_report report = report_make(CPRG_REPORT_VIOLATION, 0);
    report.code = call.nr;
    report.entries = call.arch;
    report.pid = (int32_t)call.pid;
    entry->has_violated = true;
    if (call.waits) {
        (void)sys_kill((int)call.pid, K_SIGKILL);
    }
    serve_signal(entry, K_SIGKILL);
    serve_report(&report, entry->id);
}

void serve_readable(const struct kernel_pollfd *fds, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct served *entry = &serve_table[serve_polled[i]];
        if (fds[i].revents == 0) {
            continue;
        }
        if (entry->pid != 0 && entry->status_fd == fds[i].fd) {
            serve_read_status(entry);
        } else if ((fds[i].revents & K_POLLIN) != 0) {
            serve_violation(entry);
        } else if ((fds[i].revents & K_POLLERR) == 0) { /* POLLERR: the kernel was interrupted */
            serve_close_listener(entry); /* POLLHUP: nothing is left under the filter */
        }
    }
}

/*** Ends ***/

static struct cprg_report serve_end_report(const struct served *entry, int signal) {
    if (entry->has_outcome) {
        return entry->outcome;
    }
    if (entry->started && !entry->transfer) {
        return report_make(CPRG_REPORT_EXITED, 0);
    }
    if (entry->started) {
        return report_failure(CPRG_REPORT_TRANSFERRED, CPRG_STEP_STREAM, -1,
                              signal == K_SIGTERM ? K_EINTR : K_ECHILD);
    }
    return report_failure(CPRG_REPORT_EXEC_FAILED, CPRG_STEP_EXECVE, 0, K_ECHILD);
}

static void serve_ended(struct served *entry, int status, const struct kernel_rusage *usage) {
    entry->is_reaped = true;
    while (entry->status_fd >= 0) {
        serve_read_status(entry); /* its start, if that is still unread, comes first */
    }
    int signal = status & 0x7f; /* wait(2): WTERMSIG, WEXITSTATUS */
    struct cprg_report report = serve_end_report(entry, signal);
    report.code = signal == 0 ? (status >> 8) & 0xff : -1;
    report.signal = signal;
    report.pid = entry->started ? entry->program : entry->pid;
    report.user_us = entry->user_us + (uint64_t)(usage->user_s * 1000000 + usage->user_us);
    report.system_us = entry->system_us + (uint64_t)(usage->system_s * 1000000 + usage->system_us);
    report.max_rss_bytes = (uint64_t)usage->max_rss_kib * 1024;
    entry->pid = 0;
    serve_report(&report, entry->id);
}

/* A keeper that was killed before its program had ended leaves that to init, as it leaves all its
   children: init is then the one that waits for it. False when the entry has ended. */
static bool serve_take_over(struct served *entry, const struct kernel_rusage *usage) {
    int32_t program = serve_program(entry);
    if (!entry->is_kept || program <= 0) {
        return false;
    }
    entry->user_us = (uint64_t)(usage->user_s * 1000000 + usage->user_us);
    entry->system_us = (uint64_t)(usage->system_s * 1000000 + usage->system_us);
    entry->pid = program;
    entry->is_kept = false;
    return true;
}

bool serve_reap(void) {
    for (uint32_t reaped = 0; reaped < SERVE_REAPS_MAX; reaped++) {
        struct kernel_rusage usage = {0};
        int status = 0;
        int pid = sys_wait4(-1, &status, K_WNOHANG | K_WALL, &usage);
        if (pid == -K_EINTR) {
            continue;
        }
        if (pid <= 0) {
            return false;
        }
        for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
            if (serve_table[i].pid == pid) {
                if (!serve_take_over(&serve_table[i], &usage)) {
                    serve_ended(&serve_table[i], status, &usage);
                }
                break;
            }
        }
    }
    return true;
}
