/*
 * launcher.c - a thread of the server that does nothing but launch.
 *
 * clone(2) waits for locks of the whole system (CLONE_INTO_CGROUP takes the one under which groups
 * are made and ended, every clone the one under which processes move between them), and whoever
 * waits in JavaScript's own thread holds up every client. So that thread only writes the address of
 * a job into a pipe, and this one does it.
 *
 * No libc knows of the thread: it shares the thread pointer of whoever started it, so it runs raw
 * system calls only, with all signals blocked, and never ends while the server lives.
 */
#include "cprg.h"
#include "report.h"
#include "sys-clone.h"

/* A multiple of every page size of both machines. */
#define LAUNCHER_GRANULE 65536u

/* Guard, then the stack, then what the thread begins with. Never unmapped: the thread never ends.
 */
struct launcher {
    unsigned char guard[LAUNCHER_GRANULE];
    unsigned char stack[LAUNCHER_GRANULE];
    int32_t jobs; /* read end of the pipe */
};

_Static_assert(sizeof(struct cprg_launch_job) % 8 == 0, "jobs are where 64 bits may be");

static void launcher_run(struct cprg_launch_job *job) {
    struct cprg_report report = report_make(CPRG_REPORT_LAUNCHED, 0);
    int report_fd = job->request.report_fd;
    job->result = cprg_launch(&job->request, &job->launched, &job->error);
    report.at_ns = report_now_ns();
    /* From here on the job is the server's again. */
    __atomic_store_n(&job->is_done, 1u, __ATOMIC_RELEASE);
    /* The descriptors stay open until this is read. A pipe without a reader: the server looks. */
    (void)report_write(report_fd, &report);
}

/* Writes of addresses are atomic (pipe(7)), so each read is a whole one. */
_Noreturn static void launcher_main(void *start) {
    const struct launcher *launcher = start;
    static const char name[] = "cprg-launcher";
    (void)sys_prctl(K_PR_SET_NAME, (unsigned long)(uintptr_t)name, 0);
    for (;;) {
        uint64_t address = 0;
        long count = sys_read(launcher->jobs, &address, sizeof address);
        if (count == (long)sizeof address && address != 0) {
            launcher_run((struct cprg_launch_job *)(uintptr_t)address);
        } else if (count != -K_EINTR) {
            sys_exit_thread(0); /* nobody can ask any more */
        }
    }
}

static long launcher_clone(struct launcher *launcher) {
    const uint64_t all = ~(uint64_t)0;
    uint64_t before = 0;
    const long flags = K_CLONE_VM | K_CLONE_FS | K_CLONE_FILES | K_CLONE_SIGHAND | K_CLONE_THREAD |
                       K_CLONE_SYSVSEM;
    const long arguments[5] = {flags, SYS_P(launcher->stack + sizeof launcher->stack), 0, 0, 0};
    /* The thread must not run a handler of the server's. */
    (void)sys_sigprocmask(K_SIG_SETMASK, &all, &before);
    long tid = sys_clone_call(NR_clone, arguments, launcher_main, launcher);
    (void)sys_sigprocmask(K_SIG_SETMASK, &before, NULL);
    return tid;
}

/* The pipe is made already: its read end is the thread's from here on. */
static struct step_result launcher_start(int32_t jobs) {
    long address = sys_mmap(sizeof(struct launcher), K_PROT_READ | K_PROT_WRITE,
                            K_MAP_PRIVATE | K_MAP_ANONYMOUS);
    if (address < 0) {
        return step_of(CPRG_STEP_ARENA, 1, address);
    }
    struct launcher *launcher = (struct launcher *)(uintptr_t)address;
    launcher->jobs = jobs;
    /* The guard comes first: the stack grows down into it. */
    long guarded = sys_mprotect((uintptr_t)launcher, LAUNCHER_GRANULE, K_PROT_NONE);
    struct step_result result = step_of(CPRG_STEP_ARENA, 1, guarded);
    if (result.err == 0) {
        result = step_of(CPRG_STEP_CLONE, 1, launcher_clone(launcher));
    }
    if (result.err != 0) {
        (void)sys_munmap((uintptr_t)launcher, sizeof *launcher);
    }
    return result;
}

CPRG_EXPORT int32_t cprg_launcher(struct cprg_error *error) {
    int32_t fds[2] = {-1, -1};
    struct step_result result = step_of(CPRG_STEP_DESCRIPTORS, 1, cprg_pipe(fds, 2));
    if (result.err == 0) {
        result = launcher_start(fds[0]);
    }
    *error = (struct cprg_error){(int32_t)result.step, result.index, result.err, 0};
    if (result.err == 0) {
        return fds[1];
    }
    if (fds[0] >= 0) {
        (void)sys_close(fds[0]);
        (void)sys_close(fds[1]);
    }
    return -result.err;
}

CPRG_EXPORT int32_t cprg_launch_later(int32_t launcher, struct cprg_launch_job *job) {
    const uint64_t address = (uint64_t)(uintptr_t)job;
    long written = sys_write(launcher, &address, sizeof address);
    return written < 0 ? (int32_t)written : 0;
}

CPRG_EXPORT int32_t cprg_launch_done(const struct cprg_launch_job *job) {
    return (int32_t)__atomic_load_n(&job->is_done, __ATOMIC_ACQUIRE);
}
