/* sweep.h - killing in the sandbox's pid namespace, where no cgroup says what belongs together. */
#ifndef CPRG_SWEEP_H
#define CPRG_SWEEP_H

#include <stdint.h>

/* Sends SIGKILL to all that runs here but init, and the `count` processes of `spared` with what
   descends from them. One pass: whoever waits for the end calls it again. */
void sweep_kill(const int32_t *spared, uint32_t count);

#endif
