/*
 * serve.c - see serve.h.
 *
 * A child's status pipe is close-on-exec. Its end without a record means that execve succeeded -
 * if the child got as far as execve, which it notes in a page that it shares with init, so that a
 * child killed earlier is not taken for a program. What a child reports itself (a failed exec, a
 * finished transfer) is kept until it is reaped: when the server hears of an end, the id is free.
 */
#include "serve.h"

#include "exec.h"
#include "report.h"
#include "request.h"
#include "transfer.h"

struct served {
    int32_t pid; /* 0: the entry is free */
    uint32_t id;
    int status_fd; /* read end, -1 when it has ended */
    bool transfer;
    bool started;
    bool has_outcome;
    struct cprg_report outcome;
};

/* init's own state, zero at start: one process, one thread. */
static struct served serve_table[CPRG_EXECS_MAX];
static volatile uint8_t *serve_reached; /* [CPRG_EXECS_MAX], shared with the children */
static struct serve_identity serve_who;

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

static void serve_started(struct served *entry) {
    struct cprg_report report = report_make(CPRG_REPORT_STARTED, 0);
    report.pid = entry->pid;
    entry->started = true;
    serve_report(&report, entry->id);
}

/*** Starting ***/

int serve_start(struct serve_identity identity) {
    long page =
        sys_mmap(CPRG_EXECS_MAX, K_PROT_READ | K_PROT_WRITE, K_MAP_SHARED | K_MAP_ANONYMOUS);
    serve_who = identity;
    serve_reached = (volatile uint8_t *)(uintptr_t)page;
    return page < 0 ? (int)page : 0;
}

static struct served *serve_find(uint32_t id) {
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid != 0 && serve_table[i].id == id) {
            return &serve_table[i];
        }
    }
    return NULL;
}

static struct served *serve_free_entry(void) {
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid == 0) {
            return &serve_table[i];
        }
    }
    return NULL;
}

_Noreturn static void serve_child(const struct request *request, uint32_t slot, int status_fd) {
    const struct exec_context context = {serve_who.id_program, serve_who.map_self, status_fd,
                                         &serve_reached[slot]};
    if (request->head->type == CPRG_REQUEST_EXEC) {
        exec_child(request, &context);
    }
    transfer_child(request, &context);
}

static int serve_fork(const struct request *request, struct served *entry) {
    uint32_t slot = (uint32_t)(entry - serve_table);
    int status[2];
    int result = sys_pipe2(status, K_O_CLOEXEC);
    if (result < 0) {
        return result;
    }
    serve_reached[slot] = 0;
    int pid = sys_fork();
    if (pid == 0) {
        serve_child(request, slot, status[1]);
    }
    (void)sys_close(status[1]);
    if (pid < 0) {
        (void)sys_close(status[0]);
        return pid;
    }
    *entry = (struct served){.pid = pid,
                             .id = request->head->id,
                             .status_fd = status[0],
                             .transfer = request->head->type != CPRG_REQUEST_EXEC};
    return 0;
}

static void serve_run(const struct request *request) {
    struct served *entry = serve_free_entry();
    if (serve_find(request->head->id) != NULL) {
        serve_refuse(request->head->id, CPRG_STEP_REQUEST, K_EEXIST);
        return;
    }
    int result = entry == NULL ? -K_EAGAIN : serve_fork(request, entry);
    if (result < 0) {
        serve_refuse(request->head->id, CPRG_STEP_FORK, result);
    }
}

void serve_message(const unsigned char *bytes, uint32_t length,
                   const struct channel_message *received) {
    struct request request;
    int result = request_check(&request, bytes, length, received);
    if (result < 0) {
        serve_refuse(request.head == NULL ? 0 : request.head->id, CPRG_STEP_REQUEST, result);
    } else if (request.head->type == CPRG_REQUEST_SIGNAL) {
        const struct served *entry = serve_find(request.head->id);
        if (entry != NULL) { /* it may have ended meanwhile: no error */
            (void)sys_kill(entry->pid, request.head->value);
        }
    } else {
        serve_run(&request);
    }
    channel_close_fds(received);
}

/*** Status pipes ***/

uint32_t serve_poll(struct kernel_pollfd *fds) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        if (serve_table[i].pid != 0 && serve_table[i].status_fd >= 0) {
            fds[count++] = (struct kernel_pollfd){serve_table[i].status_fd, K_POLLIN, 0};
        }
    }
    return count;
}

/* Reads one record or the end. Only called when there is one of them, so it never blocks: either
   poll said so, or the only writer is dead. */
static void serve_read_status(struct served *entry) {
    struct cprg_report record;
    long count = sys_read(entry->status_fd, &record, sizeof record);
    if (count == -K_EINTR) {
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
    if (!entry->transfer && !entry->has_outcome && serve_reached[entry - serve_table] != 0) {
        serve_started(entry);
    }
}

void serve_readable(const struct kernel_pollfd *fds, uint32_t count) {
    uint32_t slot = 0;
    for (uint32_t i = 0; i < count; i++) {
        while (serve_table[slot].pid == 0 || serve_table[slot].status_fd != fds[i].fd) {
            slot++; /* serve_poll() listed them in the order of the table */
        }
        if (fds[i].revents != 0) {
            serve_read_status(&serve_table[slot]);
        }
        slot++;
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
    while (entry->status_fd >= 0) {
        serve_read_status(entry); /* its start, if that is still unread, comes first */
    }
    int signal = status & 0x7f; /* wait(2): WTERMSIG, WEXITSTATUS */
    struct cprg_report report = serve_end_report(entry, signal);
    report.code = signal == 0 ? (status >> 8) & 0xff : -1;
    report.signal = signal;
    report.pid = entry->pid;
    report.user_us = (uint64_t)(usage->user_s * 1000000 + usage->user_us);
    report.system_us = (uint64_t)(usage->system_s * 1000000 + usage->system_us);
    report.max_rss_bytes = (uint64_t)usage->max_rss_kib * 1024;
    entry->pid = 0;
    serve_report(&report, entry->id);
}

void serve_reap(void) {
    for (;;) {
        struct kernel_rusage usage;
        int status = 0;
        int pid = sys_wait4(-1, &status, K_WNOHANG | K_WALL, &usage);
        if (pid == -K_EINTR) {
            continue;
        }
        if (pid <= 0) {
            return;
        }
        for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
            if (serve_table[i].pid == pid) {
                serve_ended(&serve_table[i], status, &usage);
                break;
            }
        }
    }
}
