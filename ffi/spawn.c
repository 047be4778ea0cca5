/*
 * spawn.c - cprg_launch(): clones process 1 of a sandbox out of the server.
 *
 * The clone shares memory (CLONE_VM: nothing is copied, however large the server is) but not
 * CLONE_VFORK, which would put the calling thread to sleep until execve, so that it could not write
 * the id maps that the child waits for. The arena that holds the child's stack and arguments
 * therefore outlives the call: README.md, "Why sharing memory is sound".
 */
#include <stdbool.h>

#include "child.h"
#include "cprg.h"
#include "report.h"
#include "sys-clone.h"
#include "text.h"

/* A multiple of every page size of both machines. */
#define SPAWN_GRANULE 65536u

/* Guard, then the stack (which grows down into the guard), then the data. */
struct spawn_arena {
    unsigned char guard[SPAWN_GRANULE];
    unsigned char stack[SPAWN_GRANULE];
    struct child_start start;
};

/*** The clone ***/

_Noreturn static void spawn_child(void *start) {
    child_main(start);
}

/* Without CLONE_INTO_CGROUP the child enters the group as it enters those of cgroup v1. */
static long spawn_clone_old(struct spawn_arena *arena, uint64_t flags, int32_t *pidfd) {
    struct cprg_launch *request = &arena->start.request;
    int procs = -1;
    if (request->cgroup_dir_fd >= 0) {
        if (request->cgroup_count == CPRG_CGROUPS_MAX) {
            return -K_E2BIG;
        }
        procs = sys_openat(request->cgroup_dir_fd, "cgroup.procs", K_O_WRONLY | K_O_CLOEXEC, 0);
        if (procs < 0) {
            return procs;
        }
        request->cgroup_fds[request->cgroup_count++] = procs;
    }
    /* The pidfd is stored where CLONE_PARENT_SETTID would store a tid: clone(2). */
    const long arguments[5] = {(long)(flags & ~K_CLONE_INTO_CGROUP),
                               SYS_P(arena->stack + sizeof arena->stack), SYS_P(pidfd), 0, 0};
    long pid = sys_clone_call(NR_clone, arguments, spawn_child, &arena->start);
    if (procs >= 0) {
        (void)sys_close(procs); /* the child has its own table of descriptors */
    }
    return pid;
}

/* clone3(2) is Linux 5.3; container filters answer ENOSYS. */
static long spawn_clone(struct spawn_arena *arena, int32_t *pidfd) {
    const struct cprg_launch *request = &arena->start.request;
    struct kernel_clone_args args = {
        .flags = K_CLONE_VM | K_CLONE_PIDFD | K_CLONE_NEWPID,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = 0, /* the server gets no SIGCHLD; execve sets it back, see execve(2) */
        .stack = (uint64_t)(uintptr_t)arena->stack,
        .stack_size = sizeof arena->stack,
    };
    size_t size = K_CLONE_ARGS_SIZE_VER0;
    if (request->map != CPRG_MAP_NONE) {
        args.flags |= K_CLONE_NEWUSER;
    }
    if (request->cgroup_dir_fd >= 0) {
        args.flags |= K_CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)request->cgroup_dir_fd;
        size = sizeof args;
    }
    const long arguments[5] = {SYS_P(&args), (long)size, 0, 0, 0};
    long pid = sys_clone_call(NR_clone3, arguments, spawn_child, &arena->start);
    return pid == -K_ENOSYS ? spawn_clone_old(arena, args.flags, pidfd) : pid;
}

/*** Preparation ***/

static int spawn_check(const struct cprg_launch *request) {
    if (request->size != sizeof *request || request->map > CPRG_MAP_SELF ||
        request->cgroup_count > CPRG_CGROUPS_MAX || request->init_fd < 0 ||
        request->control_fd < 0 || request->report_fd < 0) {
        return -K_EINVAL;
    }
    bool clash = request->id_inside == 0 || request->uid_init == request->uid_program ||
                 request->gid_init == request->gid_program;
    return request->map == CPRG_MAP_PARENT && clash ? -K_EINVAL : 0;
}

static void spawn_fill(struct child_start *start, const struct cprg_launch *request) {
    static const char name[] = "cprg-init";
    start->request = *request;
    start->go[0] = -1;
    start->go[1] = -1;
    /* execve(2) takes char * but does not write: the cast drops a const that it cannot say. */
    start->argv[0] = (char *)(uintptr_t)name;
    if (request->map == CPRG_MAP_SELF) {
        (void)text_append_number(start->own_uid, sizeof start->own_uid, 0, sys_geteuid());
        (void)text_append_number(start->own_gid, sizeof start->own_gid, 0, sys_getegid());
        start->argv[1] = start->own_uid;
        start->argv[2] = start->own_gid;
    }
}

/* The arena, or -errno as an address. */
static long spawn_arena(void) {
    long address = sys_mmap(sizeof(struct spawn_arena), K_PROT_READ | K_PROT_WRITE,
                            K_MAP_PRIVATE | K_MAP_ANONYMOUS);
    if (address < 0) {
        return address;
    }
    /* The guard comes first. */
    int result = sys_mprotect((uintptr_t)address, SPAWN_GRANULE, K_PROT_NONE);
    if (result < 0) {
        (void)sys_munmap((uintptr_t)address, sizeof(struct spawn_arena));
        return result;
    }
    return address;
}

/*** The id maps ***/

static int spawn_write_map(int32_t pid, const char *file, uint32_t init, uint32_t program,
                           uint32_t inside) {
    char path[64] = "";
    char lines[96] = "";
    size_t at = text_append(path, sizeof path, 0, "/proc/");
    at = text_append_number(path, sizeof path, at, (uint64_t)pid);
    (void)text_append(path, sizeof path, at, file);

    at = text_append(lines, sizeof lines, 0, "0 ");
    at = text_append_number(lines, sizeof lines, at, init);
    at = text_append(lines, sizeof lines, at, " 1\n");
    at = text_append_number(lines, sizeof lines, at, inside);
    at = text_append(lines, sizeof lines, at, " ");
    at = text_append_number(lines, sizeof lines, at, program);
    at = text_append(lines, sizeof lines, at, " 1\n");

    int fd = sys_openat(K_AT_FDCWD, path, K_O_WRONLY | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    long written = sys_write(fd, lines, at); /* user_namespaces(7): the whole map in one write */
    (void)sys_close(fd);
    return written < 0 ? (int)written : 0;
}

static struct step_result spawn_map(const struct spawn_arena *arena, int32_t pid) {
    const struct cprg_launch *request = &arena->start.request;
    int result = spawn_write_map(pid, "/uid_map", request->uid_init, request->uid_program,
                                 request->id_inside);
    if (result < 0) {
        return step_of(CPRG_STEP_ID_MAP, 1, result);
    }
    result = spawn_write_map(pid, "/gid_map", request->gid_init, request->gid_program,
                             request->id_inside);
    if (result < 0) {
        return step_of(CPRG_STEP_ID_MAP, 2, result);
    }
    return step_of(CPRG_STEP_GO, 0, sys_write(arena->start.go[1], "", 1));
}

/*** The call ***/

static void spawn_end(int32_t pidfd) {
    struct kernel_siginfo info;
    (void)sys_pidfd_send_signal(pidfd, K_SIGKILL);
    while (sys_waitid(K_P_PIDFD, pidfd, &info, K_WEXITED | K_WALL) == -K_EINTR) {
    }
    (void)sys_close(pidfd);
}

/* The id maps need a pipe on which the child waits for them. */
static struct step_result spawn_run(struct spawn_arena *arena, struct cprg_launched *out) {
    const uint64_t all = ~(uint64_t)0;
    uint64_t before = 0;
    bool mapped = arena->start.request.map == CPRG_MAP_PARENT;
    int piped = mapped ? sys_pipe2(arena->start.go, K_O_CLOEXEC) : 0;
    if (piped < 0) {
        return step_of(CPRG_STEP_GO, 1, piped);
    }
    /* The child must not run a handler of the server's on the server's memory. */
    (void)sys_sigprocmask(K_SIG_SETMASK, &all, &before);
    long pid = spawn_clone(arena, &out->pidfd);
    (void)sys_sigprocmask(K_SIG_SETMASK, &before, NULL);

    struct step_result result = step_of(CPRG_STEP_CLONE, 0, pid);
    if (mapped && pid > 0) {
        result = spawn_map(arena, (int32_t)pid);
    }
    if (mapped) { /* the read end only now: a child that died must not cost the server a SIGPIPE */
        (void)sys_close(arena->start.go[0]);
        (void)sys_close(arena->start.go[1]);
    }
    if (pid > 0 && result.err != 0) {
        spawn_end(out->pidfd);
    }
    out->pid = (int32_t)pid;
    return result;
}

static int spawn_free(struct spawn_arena *arena) {
    return arena == NULL ? 0 : sys_munmap((uintptr_t)arena, sizeof *arena);
}

CPRG_EXPORT int32_t cprg_launch(const struct cprg_launch *request, struct cprg_launched *out,
                                struct cprg_error *error) {
    struct step_result result = step_of(CPRG_STEP_REQUEST, 0, spawn_check(request));
    struct spawn_arena *arena = NULL;
    *out = (struct cprg_launched){0, -1, 0};
    if (result.err == 0) {
        long address = spawn_arena();
        result = step_of(CPRG_STEP_ARENA, 0, address);
        arena = address < 0 ? NULL : (struct spawn_arena *)(uintptr_t)address;
    }
    if (arena != NULL) {
        spawn_fill(&arena->start, request);
        result = spawn_run(arena, out);
    }
    *error = (struct cprg_error){(int32_t)result.step, result.index, result.err, 0};
    if (result.err != 0) {
        (void)spawn_free(arena);
        *out = (struct cprg_launched){0, -1, 0};
        return -result.err;
    }
    out->arena = (uint64_t)(uintptr_t)arena;
    return 0;
}

CPRG_EXPORT int32_t cprg_launch_end(uint64_t arena) {
    return spawn_free((struct spawn_arena *)(uintptr_t)arena);
}
