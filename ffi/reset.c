/* reset.c - see reset.h. oom_score_adj stays as the server set it. */
#include "reset.h"

#include <stdbool.h>

#include "identity.h"
#include "sys.h"
#include "text.h"

/*** Identity ***/

int proc_write(int proc, const char *path, const char *line) {
    int fd = sys_openat(proc, path, K_O_WRONLY | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    long written = sys_write(fd, line, strlen(line));
    (void)sys_close(fd);
    return written < 0 ? (int)written : 0;
}

/* user_namespaces(7): without privilege outside, a process may map one id, its own, and a gid only
   after it has given up setgroups. */
static struct step_result reset_map_self(const char *own_uid, const char *own_gid) {
    const char *files[2] = {"/proc/self/uid_map", "/proc/self/gid_map"};
    const char *ids[2] = {own_uid, own_gid};
    int result = proc_write(K_AT_FDCWD, "/proc/self/setgroups", "deny");
    for (int i = 0; i < 2 && result >= 0; i++) {
        char line[64];
        size_t at = text_append(line, sizeof line, 0, "0 ");
        at = text_append(line, sizeof line, at, ids[i]);
        if (text_append(line, sizeof line, at, " 1\n") == 0) {
            return step_of(CPRG_STEP_ID_MAP, i + 1, -K_EINVAL);
        }
        result = proc_write(K_AT_FDCWD, files[i], line);
        if (result < 0) {
            return step_of(CPRG_STEP_ID_MAP, i + 1, result);
        }
    }
    return step_of(CPRG_STEP_ID_MAP, 0, result);
}

struct step_result reset_identity(const char *own_uid, const char *own_gid) {
    bool self = own_uid != NULL && own_gid != NULL;
    if (self) {
        struct step_result mapped = reset_map_self(own_uid, own_gid);
        if (mapped.err != 0) {
            return mapped;
        }
    }
    return step_of(CPRG_STEP_BECOME_ROOT, 1, identity_become_root(self));
}

/*** The rest, in the order of its index in a failure ***/

/* A disposition of "ignore" would outlive every execve that follows. */
void reset_dispositions(void) {
    static const struct kernel_sigaction by_default = {0, 0, 0, 0};
    for (int signal = 1; signal <= K_SIGNAL_COUNT; signal++) {
        (void)sys_sigaction(signal, &by_default); /* EINVAL for SIGKILL and SIGSTOP */
    }
}

/* Everything stays blocked in init, which reads SIGCHLD from a descriptor. */
static int reset_signal_mask(void) {
    const uint64_t all = ~(uint64_t)0;
    return sys_sigprocmask(K_SIG_SETMASK, &all, NULL);
}

/* Raising priority needs a right on the host that a sandbox does not have: then the server's own
   lower priority stays, which is no danger. */
static int reset_priority(void) {
    (void)sys_setpriority(0, 0, 0);
    return sys_ioprio_set(K_IOPRIO_WHO_PROCESS, 0, 0);
}

/* All CPUs; the kernel cuts the mask down to what the cpuset allows. */
static int reset_affinity(void) {
    unsigned char all[1024];
    memset(all, 0xff, sizeof all);
    return sys_sched_setaffinity(0, sizeof all, all);
}

/* A kernel without keyrings, or a container's filter in front of them, has nothing to inherit. */
static int reset_keyring(void) {
    int result = sys_keyctl(K_KEYCTL_JOIN_SESSION_KEYRING, NULL);
    return result == -K_ENOSYS || result == -K_EPERM ? 0 : result;
}

struct step_result reset_inherited(void) {
    /* 50 microseconds is the kernel's default; 0 would mean "as inherited". */
    const unsigned long timer_slack_ns = 50000;
    int results[7];
    results[0] = reset_signal_mask();
    (void)sys_umask(022);
    results[1] = reset_priority();
    results[2] = reset_affinity();
    results[3] = sys_prctl(K_PR_SET_TIMERSLACK, timer_slack_ns, 0);
    results[4] = sys_personality(0);
    results[5] = sys_setsid();
    results[6] = reset_keyring();
    for (int i = 0; i < 7; i++) {
        if (results[i] < 0) {
            return step_of(CPRG_STEP_RESET, i, results[i]);
        }
    }
    return STEP_OK;
}
