/*
 * keeper.c - see keeper.h, PR_SET_CHILD_SUBREAPER(2const).
 *
 * Without a cgroup, what descends from a program is told from everything else in the sandbox by its
 * ancestors. Orphans would go to process 1 and be anybody's; they go to the keeper instead, for as
 * long as the program lives. A keeper has the program's id on the host and can be killed by it:
 * then init takes the program over as a child of its own (serve.c).
 */
#include "keeper.h"

#include "sys-clone.h"

_Noreturn static void keeper_program(void *start) {
    exec_child(start);
}

/* The kernel stores the pid before the child runs: init may hear of the start at any time then. */
static int keeper_clone(struct exec_start *start, volatile int32_t *program) {
    const long arguments[5] = {K_CLONE_VM | K_CLONE_PARENT_SETTID | K_SIGCHLD,
                               SYS_P(start->stack + sizeof start->stack), (long)(uintptr_t)program,
                               0, 0};
    return (int)sys_clone_call(NR_clone, arguments, keeper_program, start);
}

/* The next child that has ended, not reaped yet; -errno when there are none. */
static int keeper_wait(struct kernel_siginfo *info) {
    int result;
    do {
        *info = (struct kernel_siginfo){0};
        result = sys_waitid(K_P_ALL, 0, info, K_WEXITED | K_WNOWAIT | K_WALL);
    } while (result == -K_EINTR);
    return result < 0 ? result : info->pid;
}

static int keeper_reap(int pid) {
    int status = 0;
    while (sys_wait4(pid, &status, K_WALL, NULL) == -K_EINTR) {
    }
    return status;
}

/* Ends with the wait status that the program ended with: what init reads is then the real one. No
   core is dumped, because init's memory, of which this is a copy, is not dumpable. */
_Noreturn static void keeper_end(int status) {
    const uint64_t none = 0;
    int signal = status & 0x7f;
    if (signal != 0) {
        (void)sys_sigprocmask(K_SIG_SETMASK, &none, NULL);
        (void)sys_kill(sys_getpid(), signal);
    }
    sys_exit((status >> 8) & 0xff);
}

_Noreturn void keeper_run(struct exec_start *start, volatile int32_t *program) {
    struct kernel_siginfo ended;
    (void)sys_prctl(K_PR_SET_CHILD_SUBREAPER, 1, 0);
    int pid = keeper_clone(start, program);
    if (pid < 0) {
        exec_fail(start, step_of(CPRG_STEP_FORK, 0, pid));
    }
    /* The status socket too: its end is how init hears of execve. */
    if (sys_close_range(0, ~0u) == -K_ENOSYS) {
        for (int fd = 0; fd < (int)EXEC_FDS_MAX; fd++) {
            (void)sys_close(fd);
        }
    }
    for (;;) {
        int child = keeper_wait(&ended);
        if (child < 0) {
            sys_exit(1); /* cannot be: the program is a child until the lines below */
        }
        if (child == pid) {
            *program = 0; /* before the number can be another's */
            keeper_end(keeper_reap(pid));
        }
        (void)keeper_reap(child);
    }
}
