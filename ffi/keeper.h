/* keeper.h - the process between init and a program that is in no cgroup of its own. */
#ifndef CPRG_KEEPER_H
#define CPRG_KEEPER_H

#include <stdint.h>

#include "exec.h"

/*
 * Starts the program as a child of this process, a fork of init, adopts whatever it leaves, and
 * ends as it does. *program is its pid while that is nobody else's, shared with init.
 */
_Noreturn void keeper_run(struct exec_start *start, volatile int32_t *program);

#endif
