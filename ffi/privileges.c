/*
 * privileges.c - how the server gives up its capabilities: cprg_reduce() cuts those of the calling
 * thread, cprg_restart() replaces the process by the same program started again.
 *
 * Capabilities are a thread's own, and the runtime has threads before the first line of ours runs.
 * execve ends all threads but the calling one, and what root then gains is bounded by that thread's
 * bounding set: every thread of the new program starts out with what was kept (capabilities(7)).
 */
#include "cprg.h"
#include "sys.h"
#include "text.h"

/* Two 32-bit words; the kernel answers EINVAL above its last capability. */
#define PRIVILEGES_CAPS_MAX 64u

/*** Reduce ***/

static int privileges_bound(uint64_t keep) {
    for (unsigned cap = 0; cap < PRIVILEGES_CAPS_MAX; cap++) {
        int held = sys_prctl(K_PR_CAPBSET_READ, cap, 0);
        if (held == -K_EINVAL && cap > K_CAP_SETFCAP) {
            break; /* above the kernel's last one */
        }
        if (held > 0 && ((keep >> cap) & 1) == 0) {
            held = sys_prctl(K_PR_CAPBSET_DROP, cap, 0);
        }
        if (held < 0) {
            return held;
        }
    }
    return 0;
}

CPRG_EXPORT int32_t cprg_reduce(uint64_t keep) {
    struct kernel_cap_header header = {K_CAPABILITY_VERSION_3, 0};
    struct kernel_cap_sets sets[2] = {{0, 0, 0}, {0, 0, 0}};
    /* First, because it needs CAP_SETPCAP. */
    int result = privileges_bound(keep);
    if (result >= 0) {
        result = sys_prctl(K_PR_CAP_AMBIENT, K_PR_CAP_AMBIENT_CLEAR_ALL, 0);
    }
    if (result >= 0) {
        result = sys_capget(&header, sets);
    }
    if (result >= 0) {
        for (unsigned word = 0; word < 2; word++) {
            sets[word].permitted &= (uint32_t)(keep >> (32 * word));
            sets[word].effective = sets[word].permitted;
            sets[word].inheritable = 0;
        }
        result = sys_capset(&header, sets);
    }
    if (result >= 0) {
        result = sys_prctl(K_PR_SET_NO_NEW_PRIVS, 1, 0);
    }
    return result < 0 ? result : 0;
}

/*** Restart ***/

/* The strings in a block as /proc/PID/cmdline has it, or -1 where the last one has no end. */
static long privileges_count(const char *block, uint32_t length) {
    long count = 0;
    for (uint32_t at = 0; at < length; at++) {
        count += block[at] == '\0';
    }
    return length > 0 && block[length - 1] != '\0' ? -1 : count;
}

/* Fills in one pointer for each string and a NULL; returns the place after it. */
static char **privileges_list(char **list, char *block, uint32_t length) {
    for (uint32_t at = 0; at < length; at += (uint32_t)strlen(block + at) + 1) {
        *list++ = block + at;
    }
    *list++ = NULL;
    return list;
}

CPRG_EXPORT int32_t cprg_restart(char *args, uint32_t args_length, char *env, uint32_t env_length,
                                 const int32_t *fds, uint32_t fd_count) {
    long argc = privileges_count(args, args_length);
    long envc = privileges_count(env, env_length);
    if (argc < 1 || envc < 0) {
        return -K_EINVAL;
    }
    if (argc > CPRG_RESTART_STRINGS_MAX || envc > CPRG_RESTART_STRINGS_MAX) {
        return -K_E2BIG;
    }
    size_t size = (size_t)(argc + envc + 2) * sizeof(char *);
    long address = sys_mmap(size, K_PROT_READ | K_PROT_WRITE, K_MAP_PRIVATE | K_MAP_ANONYMOUS);
    if (address < 0) {
        return (int32_t)address;
    }
    char **argv = (char **)(uintptr_t)address;
    char **envp = privileges_list(argv, args, args_length);
    (void)privileges_list(envp, env, env_length);
    int result = 0;
    for (uint32_t i = 0; i < fd_count && result >= 0; i++) {
        result = sys_fcntl(fds[i], K_F_SETFD, 0);
    }
    /* The link leads to the file that runs, also where it was replaced or removed. */
    if (result >= 0) {
        result = sys_execve("/proc/self/exe", argv, envp);
    }
    (void)sys_munmap((uintptr_t)address, size);
    return result;
}
