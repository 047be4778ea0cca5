/*
 * filter.c - see filter.h. Whatever comes after the installation runs under the filter, so every
 * profile allows it: sendmsg, close, chdir, rt_sigprocmask, execve, and to report a failure
 * clock_gettime, write, ppoll and exit_group. A test holds the profiles to that.
 */
#include "filter.h"

#include "channel.h"
#include "exec.h"
#include "sys.h"

static int filter_set(const void *program, uint32_t length, unsigned flags) {
    const struct kernel_sock_fprog given = {(uint16_t)(length / K_SOCK_FILTER_SIZE), program};
    return sys_seccomp(K_SECCOMP_SET_MODE_FILTER, flags, &given);
}

/*
 * Whether a listener is not to be had, while a filter without one may be: another listener above
 * us (EBUSY), a kernel before 5.0 or a container's filter (EINVAL, ENOSYS), a program that may have
 * no further descriptor (EMFILE). Everything else is a failure.
 */
static bool filter_lacks_listener(int result) {
    return result == -K_EBUSY || result == -K_EINVAL || result == -K_ENOSYS || result == -K_EMFILE;
}

/* The listener is close-on-exec, as the kernel made it, but init's must be the only one at once. */
static struct step_result filter_hand_over(int listener) {
    int sent = channel_send(EXEC_STATUS_FD, "", 1, &listener, 1);
    (void)sys_close(listener);
    return step_of(CPRG_STEP_SECCOMP, 1, sent);
}

struct step_result filter_install(const struct request *request, bool can_notify,
                                  enum cprg_filter *installed) {
    const struct cprg_request *head = request->head;
    if (request->notify != NULL && can_notify) {
        int listener =
            filter_set(request->notify, head->notify_length, K_SECCOMP_FILTER_FLAG_NEW_LISTENER);
        if (listener >= 0) {
            *installed = CPRG_FILTER_NOTIFY;
            return filter_hand_over(listener);
        }
        if (!filter_lacks_listener(listener)) {
            return step_of(CPRG_STEP_SECCOMP, 0, listener);
        }
    }
    if (request->kill == NULL) {
        return STEP_OK;
    }
    *installed = CPRG_FILTER_KILL;
    return step_of(CPRG_STEP_SECCOMP, 0, filter_set(request->kill, head->kill_length, 0));
}
