/*
 * child.c - the cloned process between clone and the execution of cprg-init.
 *
 * It shares the server's memory (CLONE_VM) while the server's threads run on, so: raw system calls
 * only, no allocation, no locks, no writes outside its own stack, all signals blocked. The order:
 *   1. wait until the parent has written the id maps
 *   2. enter the cgroups, first of all that costs anything
 *   3. keep the capabilities of the new user namespace over execve
 *   4. descriptors: control to 3, report to 4, nothing else
 *   5. execute cprg-init
 * A failed step writes one CPRG_REPORT_SETUP_FAILED record and exits.
 */
#include "child.h"

#include <stdbool.h>

#include "identity.h"
#include "report.h"
#include "sys-clone.h"

/* Above every descriptor number that this file assigns. */
#define CHILD_FD_HIGH 16
#define CHILD_INIT_FD 5

_Static_assert(CPRG_INIT_CONTROL_FD == 3 && CPRG_INIT_REPORT_FD == 4, "child_descriptors()");

_Noreturn static void child_fail(int report_fd, struct step_result result) {
    struct cprg_report report =
        report_failure(CPRG_REPORT_SETUP_FAILED, result.step, result.index, result.err);
    /* The pipe is empty, so this does not wait. The server may free the arena at once. */
    sys_write_and_exit(report_fd, &report, sizeof report, 1);
}

/*** 1. Wait for the id maps ***/

static struct step_result child_wait_map(const struct child_start *start) {
    char go;
    long count;
    if (start->go[0] < 0) {
        return STEP_OK;
    }
    (void)sys_close(start->go[1]); /* else the pipe would never end when the server dies */
    do {
        count = sys_read(start->go[0], &go, 1);
    } while (count == -K_EINTR);
    if (count == 0) {
        sys_exit(1); /* the server gave up and says so itself, or is gone */
    }
    return step_of(CPRG_STEP_WAIT_MAP, 0, count);
}

/*** 2. Enter the cgroups ***/

/* "0" is whoever writes it. The kernel judges the rights of the server, which opened the file. */
static struct step_result child_cgroups(const struct cprg_launch *request) {
    for (uint32_t i = 0; i < request->cgroup_count; i++) {
        long written = sys_write(request->cgroup_fds[i], "0", 1);
        if (written < 0) {
            return step_of(CPRG_STEP_CGROUP, (int32_t)i, written);
        }
    }
    return STEP_OK;
}

/*** 3. Keep the capabilities ***/

/*
 * The ids change in cprg-init, after execve, not here: a change of the effective uid resets the
 * dumpable flag of the memory (PR_SET_DUMPABLE(2const)), which here is the server's. But execve by
 * a uid that is not 0 inside drops every capability, except ambient ones (Linux 4.3).
 */
static struct step_result child_capabilities(const struct cprg_launch *request) {
    if (request->map == CPRG_MAP_NONE) {
        return STEP_OK; /* uid 0 keeps them */
    }
    return step_of(CPRG_STEP_BECOME_ROOT, 0, identity_keep_over_exec());
}

/*** 4. Descriptors ***/

/* close_range(2) is Linux 5.9, and an outer filter may answer EPERM instead of ENOSYS. Without it:
   what /proc lists, until it lists nothing more. */
static int child_close_listed(int first) {
    _Alignas(8) char entries[1024] = {0};
    int dir = sys_openat(K_AT_FDCWD, "/proc/self/fd", K_O_RDONLY | K_O_DIRECTORY, 0);
    long size = dir;
    while (size >= 0) {
        size = sys_getdents64(dir, entries, sizeof entries);
        if (size <= 0) {
            break;
        }
        for (long at = 0; at < size;) {
            const struct kernel_dirent *entry = (const void *)(entries + at);
            int fd = 0;
            for (const char *digit = entry->name; *digit >= '0' && *digit <= '9'; digit++) {
                fd = fd * 10 + (*digit - '0');
            }
            if (fd >= first && fd != dir) {
                (void)sys_close(fd);
            }
            at += entry->reclen;
        }
    }
    (void)sys_close(dir);
    return (int)size;
}

static struct step_result child_descriptors(const struct cprg_launch *request, int *report_fd) {
    int sources[3] = {request->control_fd, request->report_fd, request->init_fd};
    /* Out of the way first: a source may have the number of another's target. */
    for (int i = 0; i < 3; i++) {
        int high = sys_fcntl(sources[i], K_F_DUPFD_CLOEXEC, CHILD_FD_HIGH);
        if (high < 0) {
            return step_of(CPRG_STEP_DESCRIPTORS, i, high);
        }
        sources[i] = high;
    }
    *report_fd = sources[1];
    for (int i = 0; i < 3; i++) {
        int moved = sys_dup3(sources[i], CPRG_INIT_CONTROL_FD + i,
                             CPRG_INIT_CONTROL_FD + i == CHILD_INIT_FD ? K_O_CLOEXEC : 0);
        if (moved < 0) {
            return step_of(CPRG_STEP_DESCRIPTORS, i, moved);
        }
    }
    *report_fd = CPRG_INIT_REPORT_FD;
    for (int fd = 0; fd < CPRG_INIT_CONTROL_FD; fd++) {
        (void)sys_close(fd);
    }
    int closed = sys_close_range(CHILD_INIT_FD + 1, ~0u);
    if (closed < 0) {
        closed = child_close_listed(CHILD_INIT_FD + 1);
    }
    return step_of(CPRG_STEP_DESCRIPTORS, 3, closed);
}

/*** 5. Execute cprg-init, and the order of all ***/

_Noreturn void child_main(const struct child_start *start) {
    const struct cprg_launch *request = &start->request;
    int report_fd = request->report_fd;
    struct step_result result = child_wait_map(start);
    if (result.err == 0) {
        result = child_cgroups(request);
    }
    if (result.err == 0) {
        result = child_capabilities(request);
    }
    if (result.err == 0) {
        result = child_descriptors(request, &report_fd);
    }
    if (result.err == 0) {
        int failed = sys_execveat(CHILD_INIT_FD, "", start->argv, start->envp, K_AT_EMPTY_PATH);
        result = step_of(CPRG_STEP_EXEC_INIT, 0, failed);
    }
    child_fail(report_fd, result);
}
