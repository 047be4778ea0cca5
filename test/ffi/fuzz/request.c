/*
 * request.c - fuzzes a request from its arrival to its last report: the rest of the input is the
 * message, FAKE_TARGET says which descriptors came with it. The child of an exec runs up to execve,
 * on init's memory as the real one does. However it goes, the server hears what ffi/README.md
 * promises, all descriptors are closed, and the id is free again.
 */
#include <sanitizer/asan_interface.h>
#include <string.h>

#include "kernel.h"
/* NOLINTNEXTLINE(bugprone-suspicious-include): its table is emptied before each run */
#include "serve.c"
#include "sweep.h"

/* Bits of FAKE_TARGET. */
#define REQUEST_FDS      15u /* descriptors of the message */
#define REQUEST_CUT      16u
#define REQUEST_MAP_SELF 32u
#define REQUEST_TWICE    64u  /* the same message once more while the first runs */
#define REQUEST_KILLED   128u /* how the child ends */

/*** The child's status socket, and the server's pipe ***/

static struct {
    struct cprg_report status[4]; /* what the child wrote and init did not read */
    bool listener[4];             /* the message of one byte instead */
    uint32_t written;
    uint32_t read;
    bool lives; /* a child that was not waited for */
    uint32_t started;
    uint32_t ended;   /* EXITED or TRANSFERRED */
    uint32_t refused; /* EXEC_FAILED */
    uint32_t executed;
    uint32_t violations;
} run;

static long request_status(bool listener, const void *record) {
    FAKE_CHECK(run.written < 4);
    run.listener[run.written] = listener;
    if (!listener) {
        memcpy(&run.status[run.written], record, sizeof run.status[0]);
    }
    run.written++;
    return listener ? 1 : (long)sizeof run.status[0];
}

static long request_report(int fd, const void *bytes, size_t length) {
    struct cprg_report report;
    if (fd != CPRG_INIT_REPORT_FD) {
        FAKE_CHECK(fake.pair[fd] >= 0);
        return request_status(false, bytes);
    }
    memcpy(&report, bytes, length);
    switch ((enum cprg_report_type)report.type) {
    case CPRG_REPORT_STARTED:
        run.started++;
        break;
    case CPRG_REPORT_EXEC_FAILED:
        FAKE_CHECK(report.err > 0 && report.step >= (int32_t)CPRG_STEP_REQUEST);
        run.refused++;
        break;
    case CPRG_REPORT_EXITED:
    case CPRG_REPORT_TRANSFERRED:
        run.ended++;
        break;
    case CPRG_REPORT_VIOLATION:
        FAKE_CHECK(run.started == 1 && run.ended == 0);
        run.violations++;
        break;
    case CPRG_REPORT_READY:
    case CPRG_REPORT_SETUP_FAILED:
    case CPRG_REPORT_LAUNCHED:
    default:
        FAKE_NEVER("a report that no request has");
    }
    return (long)length;
}

static long request_sendmsg(int fd, const void *bytes, size_t length, const int32_t *fds,
                            size_t fd_count) {
    FAKE_CHECK(fd == EXEC_STATUS_FD && length == 1 && fd_count == 1 && bytes != NULL);
    fake_check_fd(fds[0]);
    return request_status(true, NULL);
}

/* init reads the status socket: what is there, and then its end. */
static long request_recvmsg(int fd, void *header_address) {
    struct kernel_msghdr *header = header_address;
    fake_check_fd(fd);
    if (run.read == run.written) {
        return 0;
    }
    uint32_t at = run.read++;
    header->control_length = 0;
    if (!run.listener[at]) {
        FAKE_CHECK(header->iov->length >= sizeof run.status[at]);
        memcpy(header->iov->base, &run.status[at], sizeof run.status[at]);
        return (long)sizeof run.status[at];
    }
    struct kernel_cmsghdr *control = header->control;
    int listener = fake_open();
    FAKE_CHECK(listener >= 0);
    *control = (struct kernel_cmsghdr){sizeof *control + 4, K_SOL_SOCKET, K_SCM_RIGHTS};
    memcpy(control + 1, &listener, sizeof listener);
    header->control_length = sizeof *control + 8;
    return 1;
}

static long request_execve(const char *path, char *const argv[], char *const envp[]) {
    size_t total = 0;
    FAKE_CHECK(strlen(path) < CPRG_REQUEST_MAX && argv[0] != NULL);
    for (; *argv != NULL; argv++) {
        total += strlen(*argv);
    }
    for (; *envp != NULL; envp++) {
        total += strlen(*envp);
    }
    FAKE_CHECK(total < (size_t)CPRG_ARGS_MAX * CPRG_REQUEST_MAX);
    /* A name that is looked up is not in the first places. */
    if (fake.header[FAKE_FULL] > 0) {
        fake.header[FAKE_FULL]--;
        return -K_ENOENT;
    }
    run.executed++;
    return 0;
}

static long request_wait4(int *status) {
    if (!run.lives) {
        return -K_ECHILD;
    }
    run.lives = false;
    *status = (fake.header[FAKE_TARGET] & REQUEST_KILLED) != 0 ? K_SIGKILL : 3 << 8;
    return FAKE_PID;
}

/* It reads no request, and test/ffi has it on the real kernel. */
void sweep_kill(const int32_t *spared, uint32_t count) {
    FAKE_CHECK(count <= CPRG_EXECS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        FAKE_CHECK(spared[i] == FAKE_PID);
    }
}

static long request_kill(int pid, int signal) {
    FAKE_CHECK(pid == FAKE_PID && signal >= 1 && signal <= K_SIGNAL_COUNT);
    return 0;
}

const struct fake_hooks fake_hooks = {.execve = request_execve,
                                      .sendmsg = request_sendmsg,
                                      .recvmsg = request_recvmsg,
                                      .report = request_report,
                                      .wait4 = request_wait4,
                                      .kill = request_kill};

/* The other end of a transfer, which is a process of its own: it starts, and it ends well. */
_Noreturn void transfer_child(const struct exec_start *start) {
    (void)start;
    FAKE_NEVER("fork returned twice");
}

static void request_transfer(void) {
    const struct cprg_report started = {.type = CPRG_REPORT_STARTED};
    const struct cprg_report ended = {.type = CPRG_REPORT_TRANSFERRED};
    (void)request_status(false, &started);
    (void)request_status(false, &ended);
}

/*** One run ***/

static void request_reset(void) {
    static volatile uint8_t reached[CPRG_EXECS_MAX];
    static volatile int32_t programs[CPRG_EXECS_MAX];
    /* The run before may have ended in the middle. */
    __asan_unpoison_memory_region(serve_starts, sizeof serve_starts);
    memset(&run, 0, sizeof run);
    memset(serve_table, 0, sizeof serve_table);
    memset(serve_start_busy, 0, sizeof serve_start_busy);
    serve_reached = reached;
    serve_programs = programs;
    serve_id_program = 1000;
    serve_map_self = (fake.header[FAKE_TARGET] & REQUEST_MAP_SELF) != 0;
    serve_can_notify = (fake.header[FAKE_MISSING] & FAKE_NO_LISTENER) == 0;
    serve_oom_score = 0;
}

/* Hands the message over as init_request() does, what is beyond it being forbidden. */
static void request_arrives(void) {
    struct exec_start *start = serve_buffer();
    size_t room = sizeof start->message - fake.text_size;
    memcpy(start->message, fake.text, fake.text_size);
    start->received.fd_count = fake.header[FAKE_TARGET] & REQUEST_FDS;
    start->received.cut = (fake.header[FAKE_TARGET] & REQUEST_CUT) != 0;
    if (start->received.fd_count > CPRG_REQUEST_FDS_MAX) {
        start->received.fd_count = CPRG_REQUEST_FDS_MAX;
    }
    for (uint32_t i = 0; i < start->received.fd_count; i++) {
        start->received.fds[i] = fake_open();
    }
    __asan_poison_memory_region(start->message + fake.text_size, room);
    serve_message(start, (uint32_t)fake.text_size);
    __asan_unpoison_memory_region(start->message + fake.text_size, room);
}

static uint32_t request_running(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < CPRG_EXECS_MAX; i++) {
        count += serve_table[i].pid != 0 ? 1 : 0;
    }
    return count;
}

/* init's loop until nothing is left: sockets that can be read, ends of children, listeners. */
static void request_settle(bool listeners_end) {
    static struct kernel_pollfd fds[SERVE_FDS_MAX];
    uint32_t count = serve_poll(fds);
    bool violates = (fake.header[FAKE_MISSING] & FAKE_VIOLATION) != 0;
    for (uint32_t i = 0; i < count; i++) {
        fake_check_fd(fds[i].fd);
        bool socket = fake.pair[fds[i].fd] >= 0;
        int listener = listeners_end ? K_POLLHUP : (violates ? fds[i].events : 0);
        fds[i].revents = (int16_t)(socket ? K_POLLIN : listener);
    }
    serve_readable(fds, count);
}

/* The same message while the first one's child lives: its id is in use. */
static void request_again(void) {
    uint32_t refused = run.refused;
    request_arrives();
    FAKE_CHECK(run.refused == refused + 1);
    run.refused = refused;
}

/* What ffi/README.md promises, "What the server hears". */
static void request_judge(void) {
    FAKE_CHECK(run.violations <= 1);
    FAKE_CHECK(run.ended <= run.started);
    FAKE_CHECK(run.ended + run.refused <= 1);
    FAKE_CHECK(request_running() > 0 || fake_open_count() == 0);
}

static void request_judge_faultless(bool child) {
    FAKE_CHECK(run.executed == 0 || run.started == 1);
    FAKE_CHECK(!child || run.ended + run.refused == 1);
    FAKE_CHECK(request_running() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size <= FAKE_HEADER || size > FAKE_HEADER + CPRG_REQUEST_MAX) {
        return -1;
    }
    fake_start(input, size);
    request_reset();
    if (setjmp(fake_exit) != 0) { /* init ends itself only when nobody reads its reports */
        FAKE_CHECK(fake.faults > 0);
        return 0;
    }
    request_arrives();
    FAKE_CHECK(request_running() <= 1 && run.started == 0);
    bool child = request_running() == 1;
    run.lives = child;
    if (child && serve_table[0].transfer) {
        request_transfer();
    }
    if (child && (fake.header[FAKE_TARGET] & REQUEST_TWICE) != 0) {
        request_again();
    }
    for (int round = 0; round < 4; round++) {
        request_settle(false);
    }
    FAKE_CHECK(!serve_reap());
    request_settle(true);
    request_judge();
    if (fake.faults == 0) {
        request_judge_faultless(child);
    }
    return 0;
}
