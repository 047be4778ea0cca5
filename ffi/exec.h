/* exec.h - the child of one request, between fork and the program. */
#ifndef CPRG_EXEC_H
#define CPRG_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "report.h"
#include "request.h"

/* The number of the status pipe in a child; above 0, 1 and 2. */
#define EXEC_STATUS_FD 3

struct exec_context {
    uint32_t id_program;
    bool map_self;             /* setgroups is denied by the map */
    int status_fd;             /* write end, close-on-exec */
    volatile uint8_t *reached; /* shared with init: set right before execve */
};

/* The common steps, in the order listed in exec.c. */
struct step_result exec_prepare(const struct request *request, const struct exec_context *context);
/* Never returns: the program runs, or a record on the status pipe says why not. */
_Noreturn void exec_child(const struct request *request, const struct exec_context *context);
/* Writes a record to EXEC_STATUS_FD and exits. */
_Noreturn void exec_fail(int status_fd, struct step_result result);

#endif
