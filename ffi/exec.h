/* exec.h - the child of one request, between fork and the program. */
#ifndef CPRG_EXEC_H
#define CPRG_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "report.h"
#include "request.h"

/* The number of the status socket in a child; above 0, 1 and 2. */
#define EXEC_STATUS_FD 3

/* What the child notes: that it calls execve, and under which filter (enum cprg_filter). */
#define EXEC_REACHED(filter)    ((uint8_t)((filter) + 1))
#define EXEC_FILTER_OF(reached) ((reached) == 0 ? CPRG_FILTER_NONE : (reached)-1)

/* All that init can have open at once, a status socket and a listener for each exec among it:
   before Linux 5.9 there is no close_range(2). */
#define EXEC_FDS_MAX (2 * CPRG_EXECS_MAX + 64u)

struct exec_context {
    uint32_t id_program;
    bool map_self;             /* setgroups is denied by the map */
    bool can_notify;           /* init reads notifications of this kernel */
    int status_fd;             /* the child's end, close-on-exec */
    volatile uint8_t *reached; /* shared with init: EXEC_REACHED of the filter, before execve */
};

/*
 * All that a starting child reads and writes. A child of an exec shares init's memory until execve
 * (serve.c says why), so each that is starting has one of these to itself.
 */
struct exec_start {
    struct channel_message received;
    struct request request;
    struct exec_context context;
    _Alignas(8) unsigned char message[CPRG_REQUEST_MAX];
    char *strings[CPRG_ARGS_MAX + 2];        /* argv, NULL, envp, NULL */
    _Alignas(16) unsigned char stack[32768]; /* an overflow runs into `strings` and `message` */
};

/* The steps that execs and transfers share, in the order listed in exec.c. */
struct step_result exec_prepare(const struct exec_start *start);
/* Never returns: the program runs, or a record on the status socket says why not. */
_Noreturn void exec_child(struct exec_start *start);
/* Writes the record of a failed step, to wherever the status socket is by then, and exits. */
_Noreturn void exec_fail(const struct exec_start *start, struct step_result result);

#endif
