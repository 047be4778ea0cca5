/*
 * init.c - cprg-init, process 1 of a sandbox. A static program without libc. The order:
 *   1. identity, and what was inherited (reset.c)
 *   2. the plan: one message; the root (plan.c)
 *   3. the nested user namespace of CPRG_MAP_SELF
 *   4. the workspace directory opened, capabilities reduced
 *   5. the workspace descriptor and READY to the server
 *   6. signal dispositions and the bounding set, before anything of others can run
 *   7. requests, until the control socket ends; then exit, and the kernel ends everything inside
 */
#include <stdbool.h>

#include "channel.h"
#include "cprg.h"
#include "identity.h"
#include "plan.h"
#include "report.h"
#include "reset.h"
#include "serve.h"
#include "sys.h"
#include "text.h"

/* More than a plan can leave open: root, data, parent and two masks. */
#define INIT_BUILD_FDS_MAX 32

_Noreturn static void init_fail(struct step_result result) {
    struct cprg_report report =
        report_failure(CPRG_REPORT_SETUP_FAILED, result.step, result.index, result.err);
    (void)report_write(CPRG_INIT_REPORT_FD, &report);
    sys_exit(1);
}

static void init_require(struct step_result result) {
    if (result.err != 0) {
        init_fail(result);
    }
}

/*** 1. Start ***/

/* 0, 1 and 2 stay occupied by something inert, so that no descriptor that arrives later gets one
   of these numbers (exec.c relies on it). */
static struct step_result init_descriptors(void) {
    for (int fd = 0; fd < CPRG_INIT_CONTROL_FD; fd++) {
        int made = sys_eventfd2(0, K_O_CLOEXEC);
        if (made != fd) {
            return step_of(CPRG_STEP_RESET, 8, made < 0 ? made : -K_EBADF);
        }
    }
    int result = sys_fcntl(CPRG_INIT_CONTROL_FD, K_F_SETFD, K_FD_CLOEXEC);
    if (result >= 0) {
        result = sys_fcntl(CPRG_INIT_REPORT_FD, K_F_SETFD, K_FD_CLOEXEC);
    }
    return step_of(CPRG_STEP_RESET, 9, result);
}

/*** 2. The plan ***/

/* Waits for one message: its length. Without a server there is nobody to report to. */
static uint32_t init_receive(struct exec_start *buffer) {
    for (;;) {
        struct kernel_pollfd control = {CPRG_INIT_CONTROL_FD, K_POLLIN, 0};
        (void)sys_ppoll(&control, 1, NULL);
        long length = channel_receive(CPRG_INIT_CONTROL_FD, buffer->message, sizeof buffer->message,
                                      &buffer->received);
        if (length > 0) {
            return (uint32_t)length;
        }
        if (length != -K_EAGAIN) {
            sys_exit(0);
        }
    }
}

static void init_build(struct plan *plan, bool self) {
    struct exec_start *buffer = serve_buffer();
    uint32_t length = init_receive(buffer);
    channel_close_fds(&buffer->received);
    if (buffer->received.cut) {
        init_fail(step_of(CPRG_STEP_PLAN, -1, -K_EMSGSIZE));
    }
    init_require(plan_check(plan, buffer->message, length, self));
    init_require(plan_build(plan));
}

/*** 3. User namespaces ***/

/*
 * Further user namespaces would give the program every capability again, inside them, and with
 * that much more of the kernel to attack. The limit belongs to the sandbox's own namespace, so it
 * dies with it. Where the host's /proc is read-only, as in some containers, the seccomp layer is
 * what forbids them.
 */
static void init_limit_namespaces(int proc, const char *count) {
    (void)proc_write(proc, "sys/user/max_user_namespaces", count);
}

/* What programs take of these is charged to whoever made the namespace too, for the whole host
   (user_namespaces(7), /proc/sys/user): one sandbox must not use up everybody's. */
static void init_limit_watches(int proc) {
    (void)proc_write(proc, "sys/user/max_inotify_instances", "8");
    (void)proc_write(proc, "sys/user/max_inotify_watches", "2048");
    (void)proc_write(proc, "sys/user/max_fanotify_groups", "0");
    (void)proc_write(proc, "sys/user/max_fanotify_marks", "0");
}

/* With one mapped id, the program's final id is another name for it, in a namespace below. */
static struct step_result init_nest(int proc, uint32_t id) {
    char line[64];
    size_t at = text_append_number(line, sizeof line, 0, id);
    (void)text_append(line, sizeof line, at, " 0 1\n");
    int result = sys_unshare(K_CLONE_NEWUSER);
    if (result >= 0) {
        result = proc_write(proc, "self/uid_map", line);
    }
    if (result >= 0) {
        result = proc_write(proc, "self/gid_map", line);
    }
    return step_of(CPRG_STEP_CAPABILITIES, 1, result);
}

/*** 4. to 6. Ready ***/

static void init_ready(const struct plan *plan) {
    bool self = plan->head->id_map == CPRG_MAP_SELF;
    int workspace = sys_openat(K_AT_FDCWD, plan->workspace,
                               K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
    init_require(step_of(CPRG_STEP_READY, 0, workspace));
    init_require(step_of(CPRG_STEP_CAPABILITIES, 0, identity_reduce_init()));
    init_require(step_of(CPRG_STEP_READY, 1, serve_start(plan->head->id_program, self)));
    int given[2] = {workspace, -1};
    uint32_t count = 1;
    const char *devpts = plan_devpts(plan);
    if (devpts != NULL) {
        given[count] = sys_openat(K_AT_FDCWD, devpts,
                                  K_O_PATH | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
        init_require(step_of(CPRG_STEP_READY, 3, given[count]));
        count++;
    }
    int sent = channel_send(CPRG_INIT_CONTROL_FD, "", 1, given, count);
    init_require(step_of(CPRG_STEP_READY, 2, sent));
    while (count > 0) {
        (void)sys_close(given[--count]);
    }
    struct cprg_report ready = report_make(CPRG_REPORT_READY, 0);
    if (report_write(CPRG_INIT_REPORT_FD, &ready) < 0) {
        sys_exit(0);
    }
}

/* What only matters to the first exec is done while the server prepares it. */
static void init_seal(void) {
    /* Without it, ps shows the name of the memfd, or the number of a descriptor. */
    (void)sys_prctl(K_PR_SET_NAME, (unsigned long)(uintptr_t) "cprg-init", 0);
    reset_dispositions();
    init_require(step_of(CPRG_STEP_CAPABILITIES, 2, identity_seal_init()));
}

/*** 7. Requests ***/

static int init_signal_fd(void) {
    const uint64_t child = (uint64_t)1 << (K_SIGCHLD - 1);
    return sys_signalfd4(-1, &child, K_SFD_FLAGS);
}

/* One read takes the signal: those that come before the next read are merged into one. True: more
   are to be reaped, and no other signal says so. */
static bool init_child_ended(int signal_fd) {
    unsigned char info[128]; /* struct signalfd_siginfo */
    (void)sys_read(signal_fd, info, sizeof info);
    return serve_reap();
}

static void init_request(void) {
    struct exec_start *buffer = serve_buffer();
    long length = channel_receive(CPRG_INIT_CONTROL_FD, buffer->message, sizeof buffer->message,
                                  &buffer->received);
    if (length > 0) {
        serve_message(buffer, (uint32_t)length);
    } else if (length != -K_EAGAIN) {
        sys_exit(0); /* the server closed it or died: the kernel ends all that runs here */
    }
}

_Noreturn static void init_loop(int signal_fd) {
    static struct kernel_pollfd fds[SERVE_FDS_MAX + 2];
    static const struct kernel_timespec at_once = {0, 0};
    bool unreaped = false;
    for (;;) {
        fds[0] = (struct kernel_pollfd){CPRG_INIT_CONTROL_FD, K_POLLIN, 0};
        fds[1] = (struct kernel_pollfd){signal_fd, K_POLLIN, 0};
        uint32_t count = serve_poll(fds + 2);
        if (sys_ppoll(fds, count + 2, unreaped ? &at_once : NULL) < 0) {
            continue;
        }
        serve_readable(fds + 2, count);
        if (unreaped || fds[1].revents != 0) {
            unreaped = init_child_ended(signal_fd);
        }
        if (fds[0].revents != 0) {
            init_request();
        }
    }
}

/*** Entry ***/

/* Closes what showed the host while the root was built: every descriptor from `first` on. */
static void init_close_host(int first) {
    if (sys_close_range((unsigned)first, ~0u) < 0) {
        for (int fd = first; fd < first + INIT_BUILD_FDS_MAX; fd++) {
            (void)sys_close(fd);
        }
    }
}

_Noreturn static void init_main(const char *own_uid, const char *own_gid) {
    struct plan plan;
    bool self = own_uid != NULL;
    init_require(init_descriptors());
    init_require(reset_identity(own_uid, own_gid));
    init_require(reset_inherited());
    int signal_fd = init_signal_fd();
    init_require(step_of(CPRG_STEP_RESET, 10, signal_fd));
    int proc = sys_openat(K_AT_FDCWD, "/proc", K_O_PATH | K_O_DIRECTORY | K_O_CLOEXEC, 0);
    init_require(step_of(CPRG_STEP_RESET, 11, proc));
    init_build(&plan, self);
    bool nested = self && plan.head->id_program != 0;
    if (plan.head->id_map != CPRG_MAP_NONE) { /* else the limit would be the host's */
        init_limit_namespaces(proc, nested ? "1" : "0");
        init_limit_watches(proc);
    }
    if (nested) {
        init_require(init_nest(proc, plan.head->id_program));
    }
    init_close_host(signal_fd + 1);
    init_ready(&plan);
    init_seal();
    init_loop(signal_fd);
}

#ifdef CPRG_HOSTED /* sanitizer builds: libc calls main */
int main(int argc, char **argv) {
    init_main(argc > 2 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL);
}
#else
/* The stack as the kernel leaves it: argc, then argv. */
_Noreturn __attribute__((used, visibility("hidden"))) void init_entry(char **stack);
_Noreturn void init_entry(char **stack) {
    bool self = (uintptr_t)stack[0] > 2;
    init_main(self ? stack[2] : NULL, self ? stack[3] : NULL);
}

#if defined(__x86_64__)
__asm__(".text\n.globl _start\n.type _start, @function\n_start:\n\t"
        "xor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall init_entry\n\thlt\n");
#else
__asm__(".text\n.globl _start\n.type _start, %function\n_start:\n\t"
        "mov x29, xzr\n\tmov x30, xzr\n\tmov x0, sp\n\tbl init_entry\n\tbrk #1\n");
#endif
#endif
