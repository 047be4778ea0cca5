/* report.h - the records that go up the report pipe, and the status socket of each exec. */
#ifndef CPRG_REPORT_H
#define CPRG_REPORT_H

#include <stdint.h>

#include "cprg.h"

uint64_t report_now_ns(void);
struct cprg_report report_make(enum cprg_report_type type, uint32_t id);
struct cprg_report report_failure(enum cprg_report_type type, enum cprg_step step, int32_t index,
                                  int error);
/* Writes one record; waits while the pipe is full. -EPIPE: nobody is left to read. */
int report_write(int fd, const struct cprg_report *report);

/* What a step of a set-up answers: where it failed. err 0: it did not. */
struct step_result {
    enum cprg_step step;
    int32_t index;
    int err; /* an errno value, positive */
};
#define STEP_OK ((struct step_result){CPRG_STEP_NONE, 0, 0})
/* `result` is what a system call returned. */
struct step_result step_of(enum cprg_step step, int32_t index, long result);

#endif
