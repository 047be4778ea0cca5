/*
 * exec.c - see exec.h. The order in the child, which init cloned with all signals blocked:
 *   1. enter the cgroups, so that all that follows is charged and killable
 *   2. new session, and its controlling terminal if the request has one
 *   3. descriptors: streams to 0, 1, 2 and the status socket to 3, nothing else; umask
 *   4. rlimits, only lowered
 *   5. identity: the program's id, no groups, no capability in any of the five sets
 *   6. no_new_privs
 *   7. the system call filter, under which all that follows runs (filter.c)
 *   8. working directory, with the program's own rights
 *   9. default signal mask, execve
 */
#include "exec.h"

#include "filter.h"
#include "identity.h"
#include "sys.h"
#include "text.h"

_Noreturn void exec_fail(const struct exec_start *start, struct step_result result) {
    int status_fd = result.step > CPRG_STEP_STDIO ? EXEC_STATUS_FD : start->context.status_fd;
    struct cprg_report report =
        report_failure(CPRG_REPORT_EXEC_FAILED, result.step, result.index, result.err);
    (void)report_write(status_fd, &report);
    sys_exit(1);
}

/*** 1. Cgroups ***/

static struct step_result exec_cgroups(const struct request *request) {
    for (uint32_t i = 0; i < request->head->cgroup_count; i++) {
        long written = sys_write(request->cgroup_fds[i], "0", 1);
        if (written < 0) {
            return step_of(CPRG_STEP_EXEC_CGROUP, (int32_t)i, written);
        }
    }
    return STEP_OK;
}

/*** 2. Session ***/

static struct step_result exec_session(const struct request *request) {
    int result = sys_setsid();
    if (result < 0) {
        return step_of(CPRG_STEP_SESSION, 0, result);
    }
    if ((request->head->flags & CPRG_FLAG_TERMINAL) != 0) {
        result = sys_ioctl(request->stream_fds[0], K_TIOCSCTTY, NULL);
    }
    return step_of(CPRG_STEP_SESSION, 2, result);
}

/*** 3. Descriptors ***/

/* init keeps 0, 1 and 2 occupied, so no source has the number of a target. */
static struct step_result exec_streams(const struct request *request) {
    int target = 0;
    if (request->head->type == CPRG_REQUEST_EXEC && request->stream_fd_count == 2) {
        int null = sys_openat(K_AT_FDCWD, "/dev/null", K_O_RDONLY | K_O_CLOEXEC, 0);
        int moved = null < 0 ? null : sys_dup3(null, target++, 0);
        if (moved < 0) {
            return step_of(CPRG_STEP_STDIO, 0, moved);
        }
    }
    for (uint32_t i = 0; i < request->stream_fd_count; i++, target++) {
        int moved = sys_dup3(request->stream_fds[i], target, 0);
        if (moved < 0) {
            return step_of(CPRG_STEP_STDIO, target, moved);
        }
    }
    while (target < EXEC_STATUS_FD) { /* a transfer has one stream */
        (void)sys_close(target++);
    }
    return STEP_OK;
}

static struct step_result exec_descriptors(const struct request *request, int status_fd) {
    struct step_result result = exec_streams(request);
    if (result.err != 0) {
        return result;
    }
    int moved = sys_dup3(status_fd, EXEC_STATUS_FD, K_O_CLOEXEC);
    if (moved < 0) {
        return step_of(CPRG_STEP_STDIO, EXEC_STATUS_FD, moved);
    }
    int closed = sys_close_range(EXEC_STATUS_FD + 1, ~0u);
    if (closed <
        0) { /* before Linux 5.9, or an outer filter: init's own are few, and numbered densely */
        for (unsigned fd = EXEC_STATUS_FD + 1; fd < EXEC_FDS_MAX; fd++) {
            (void)sys_close((int)fd);
        }
    }
    (void)sys_umask(request->head->umask);
    return STEP_OK;
}

/*** 4. Rlimits ***/

static uint64_t exec_lower(uint64_t wanted, uint64_t limit) {
    return wanted < limit ? wanted : limit;
}

/* init lacks SYS_RESOURCE, so the kernel itself refuses to raise a hard limit (EPERM); what was
   asked for is lowered only then. */
static int exec_rlimit(const struct cprg_rlimit *wanted) {
    struct kernel_rlimit limit = {exec_lower(wanted->soft, wanted->hard), wanted->hard};
    struct kernel_rlimit current = {0, 0};
    int result = sys_prlimit64((int)wanted->resource, &limit, NULL);
    if (result != -K_EPERM) {
        return result;
    }
    result = sys_prlimit64((int)wanted->resource, NULL, &current);
    if (result < 0) {
        return result;
    }
    limit.hard = exec_lower(limit.hard, current.hard);
    limit.soft = exec_lower(limit.soft, limit.hard);
    return sys_prlimit64((int)wanted->resource, &limit, NULL);
}

static struct step_result exec_rlimits(const struct request *request) {
    for (uint32_t i = 0; i < request->head->rlimit_count; i++) {
        int result = exec_rlimit(&request->rlimits[i]);
        if (result < 0) {
            return step_of(CPRG_STEP_RLIMIT, (int32_t)i, result);
        }
    }
    return STEP_OK;
}

/*** All common steps ***/

struct step_result exec_prepare(const struct exec_start *start) {
    const struct request *request = &start->request;
    const struct exec_context *context = &start->context;
    struct step_result result = exec_cgroups(request);
    if (result.err == 0) {
        result = exec_session(request);
    }
    if (result.err == 0) {
        result = exec_descriptors(request, context->status_fd);
    }
    if (result.err == 0) {
        result = exec_rlimits(request);
    }
    if (result.err == 0) {
        result = step_of(CPRG_STEP_IDENTITY, 0,
                         identity_become_program(context->id_program, context->map_self));
    }
    if (result.err == 0) {
        result = step_of(CPRG_STEP_NO_NEW_PRIVS, 0, identity_no_new_privs());
    }
    return result;
}

/*** 9. execve ***/

static char **exec_fill(char **at, const struct message *message, const uint32_t *offsets,
                        uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        /* execve(2) takes char * but does not write: the cast drops a const it cannot say. */
        *at++ = (char *)(uintptr_t)(message->bytes + offsets[i]);
    }
    *at++ = NULL;
    return at;
}

/* PATH of the program's own environment; exec(3) names the default. */
static const char *exec_search_path(char *const envp[]) {
    for (; *envp != NULL; envp++) {
        if (text_starts_with(*envp, "PATH=")) {
            return *envp + 5;
        }
    }
    return "/bin:/usr/bin";
}

/* Joins one element of PATH (empty: the working directory) and the name; false if too long. */
static bool exec_join(char path[CPRG_PATH_MAX], const char *element, size_t length,
                      const char *name) {
    if (length + 2 > CPRG_PATH_MAX) {
        return false;
    }
    memcpy(path, element, length);
    path[length] = '\0';
    if (length > 0) {
        path[length++] = '/';
        path[length] = '\0';
    }
    return text_append(path, CPRG_PATH_MAX, length, name) != 0;
}

/* execvp(3): goes on after what may be right elsewhere; EACCES wins over ENOENT at the end. */
static int exec_search(const char *name, char *const argv[], char *const envp[]) {
    char path[CPRG_PATH_MAX];
    int answer = -K_ENOENT;
    const char *element = exec_search_path(envp);
    for (;;) {
        size_t length = 0;
        while (element[length] != '\0' && element[length] != ':') {
            length++;
        }
        int result =
            exec_join(path, element, length, name) ? sys_execve(path, argv, envp) : -K_ENAMETOOLONG;
        switch (result) {
        case -K_EACCES:
            answer = result;
            break;
        case -K_ENOENT:
        case -K_ENOTDIR:
        case -K_ENAMETOOLONG:
        case -K_ESTALE:
        case -K_ENODEV:
        case -K_ETIMEDOUT:
            break;
        default:
            return result;
        }
        if (element[length] == '\0') {
            return answer;
        }
        element += length + 1;
    }
}

static int exec_program(struct exec_start *start, enum cprg_filter filter) {
    const struct request *request = &start->request;
    const struct cprg_request *head = request->head;
    const uint64_t none = 0;
    char **argv = start->strings;
    char **envp = exec_fill(argv, &request->message, request->argv, head->argc);
    (void)exec_fill(envp, &request->message, request->envp, head->envc);
    (void)sys_sigprocmask(K_SIG_SETMASK, &none, NULL);
    *start->context.reached = EXEC_REACHED(filter);
    const char *name = (const char *)request->message.bytes + request->argv[0];
    if (name[0] == '\0') {
        return -K_ENOENT;
    }
    return path_name(name) != name ? sys_execve(name, argv, envp) : exec_search(name, argv, envp);
}

_Noreturn void exec_child(struct exec_start *start) {
    enum cprg_filter filter = CPRG_FILTER_NONE;
    struct step_result result = exec_prepare(start);
    if (result.err == 0) {
        result = filter_install(&start->request, start->context.can_notify, &filter);
    }
    if (result.err == 0) {
        result = step_of(CPRG_STEP_DIRECTORY, 0, sys_chdir(start->request.path));
    }
    if (result.err == 0) {
        result = step_of(CPRG_STEP_EXECVE, 0, exec_program(start, filter));
    }
    exec_fail(start, result);
}
