/* report.c - see report.h. */
#include "report.h"

#include "sys.h"

/* pipe(7): writes up to PIPE_BUF are atomic, so records of several writers never mix. */
#define REPORT_PIPE_BUF 4096
_Static_assert(sizeof(struct cprg_report) <= REPORT_PIPE_BUF, "pipe(7)");

uint64_t report_now_ns(void) {
    struct kernel_timespec now = {0, 0};
    (void)sys_clock_gettime(K_CLOCK_MONOTONIC, &now);
    return (uint64_t)now.seconds * 1000000000u + (uint64_t)now.nanoseconds;
}

struct cprg_report report_make(enum cprg_report_type type, uint32_t id) {
    return (struct cprg_report){.type = (uint32_t)type, .id = id, .at_ns = report_now_ns()};
}

struct cprg_report report_failure(enum cprg_report_type type, enum cprg_step step, int32_t index,
                                  int error) {
    struct cprg_report report = report_make(type, 0);
    report.step = (int32_t)step;
    report.index = index;
    report.err = error < 0 ? -error : error;
    return report;
}

int report_write(int fd, const struct cprg_report *report) {
    for (;;) {
        long written = sys_write(fd, report, sizeof *report);
        if (written == -K_EAGAIN) { /* the server made its end's file non-blocking */
            struct kernel_pollfd writable = {.fd = fd, .events = K_POLLOUT};
            (void)sys_ppoll(&writable, 1, NULL);
        } else if (written != -K_EINTR) {
            return written < 0 ? (int)written : 0;
        }
    }
}

struct step_result step_of(enum cprg_step step, int32_t index, long result) {
    if (result >= 0) {
        return STEP_OK;
    }
    return (struct step_result){step, index, (int)-result};
}
