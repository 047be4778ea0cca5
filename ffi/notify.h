/* notify.h - what a listener of a seccomp filter says: seccomp_unotify(2). */
#ifndef CPRG_NOTIFY_H
#define CPRG_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* A call that a filter trapped. */
struct notify_call {
    int32_t nr;
    uint32_t arch;
    uint32_t pid; /* the thread's; it still waits in the call, so the number is still its own */
    bool waits;   /* false: it waits no more, and pid may be another's */
};

/* Whether this kernel's notifications fit into what notify_receive() has for them. */
bool notify_is_possible(void);
/*
 * After poll said POLLIN, so it never blocks: the kernel counts what waits. False if the call that
 * poll saw was given up meanwhile, by a signal or a death. Nothing is ever answered.
 */
bool notify_receive(int listener, struct notify_call *call);

#endif
