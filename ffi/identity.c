/* identity.c - see identity.h, capabilities(7), user_namespaces(7), credentials(7). */
#include "identity.h"

#include "sys.h"

#define CAP_BIT(capability) (1u << (capability))
/* What init needs to become the program (SETUID, SETGID), to signal it (KILL) and to empty the
   bounding set of each exec (SETPCAP). */
#define INIT_CAPABILITIES                                                                          \
    (CAP_BIT(K_CAP_SETUID) | CAP_BIT(K_CAP_SETGID) | CAP_BIT(K_CAP_KILL) | CAP_BIT(K_CAP_SETPCAP))
/* Two 32-bit words; the kernel answers EINVAL above its last capability. */
#define CAPABILITIES_MAX 64u

static int identity_get(struct kernel_cap_sets sets[2]) {
    struct kernel_cap_header header = {K_CAPABILITY_VERSION_3, 0};
    return sys_capget(&header, sets);
}

static int identity_set(const struct kernel_cap_sets sets[2]) {
    struct kernel_cap_header header = {K_CAPABILITY_VERSION_3, 0};
    return sys_capset(&header, sets);
}

/*** Before cprg-init is executed ***/

int identity_keep_over_exec(void) {
    struct kernel_cap_sets sets[2];
    int result = identity_get(sets);
    if (result < 0) {
        return result;
    }
    sets[0].inheritable = sets[0].permitted;
    sets[1].inheritable = sets[1].permitted;
    result = identity_set(sets);
    for (unsigned cap = 0; cap < CAPABILITIES_MAX && result >= 0; cap++) {
        if ((sets[cap / 32].permitted & CAP_BIT(cap % 32)) != 0) {
            result = sys_prctl(K_PR_CAP_AMBIENT, K_PR_CAP_AMBIENT_RAISE, cap);
        }
    }
    return result;
}

/*** init ***/

static int identity_drop_groups(bool denied_ok) {
    int result = sys_setgroups(0, NULL);
    return denied_ok && result == -K_EPERM ? 0 : result;
}

static int identity_change(uint32_t id, bool denied_ok) {
    int result = identity_drop_groups(denied_ok);
    if (result >= 0) {
        result = sys_setresgid(id);
    }
    if (result >= 0) {
        result = sys_setresuid(id);
    }
    return result;
}

int identity_become_root(bool denied_ok) {
    return identity_change(0, denied_ok);
}

/* Drops from the bounding set all but `kept`. */
static int identity_bound(uint32_t kept) {
    for (unsigned cap = 0; cap < CAPABILITIES_MAX; cap++) {
        if (cap < 32 && (kept & CAP_BIT(cap)) != 0) {
            continue;
        }
        int result = sys_prctl(K_PR_CAPBSET_DROP, cap, 0);
        if (result == -K_EINVAL) {
            return 0; /* above the kernel's last one */
        }
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

int identity_no_new_privs(void) {
    return sys_prctl(K_PR_SET_NO_NEW_PRIVS, 1, 0);
}

int identity_reduce_init(void) {
    const struct kernel_cap_sets sets[2] = {{INIT_CAPABILITIES, INIT_CAPABILITIES, 0}, {0, 0, 0}};
    int result = identity_bound(INIT_CAPABILITIES);
    if (result >= 0) {
        result = sys_prctl(K_PR_CAP_AMBIENT, K_PR_CAP_AMBIENT_CLEAR_ALL, 0);
    }
    if (result >= 0) {
        result = identity_set(sets);
    }
    if (result >= 0) {
        result = sys_prctl(K_PR_SET_DUMPABLE, 0, 0);
    }
    return result < 0 ? result : identity_no_new_privs();
}

/*** The program ***/

static int identity_verify_empty(void) {
    struct kernel_cap_sets sets[2];
    int result = identity_get(sets);
    if (result < 0) {
        return result;
    }
    for (unsigned word = 0; word < 2; word++) {
        if ((sets[word].effective | sets[word].permitted | sets[word].inheritable) != 0) {
            return -K_EPERM;
        }
    }
    for (unsigned cap = 0; cap < CAPABILITIES_MAX; cap++) {
        int bound = sys_prctl(K_PR_CAPBSET_READ, cap, 0);
        if (bound == -K_EINVAL) {
            return 0;
        }
        if (bound != 0 || sys_prctl(K_PR_CAP_AMBIENT, K_PR_CAP_AMBIENT_IS_SET, cap) != 0) {
            return -K_EPERM;
        }
    }
    return 0;
}

int identity_become_program(uint32_t id, bool denied_ok) {
    static const struct kernel_cap_sets none[2] = {{0, 0, 0}, {0, 0, 0}};
    int result = identity_bound(0);
    if (result >= 0) {
        result = sys_prctl(K_PR_CAP_AMBIENT, K_PR_CAP_AMBIENT_CLEAR_ALL, 0);
    }
    if (result >= 0) {
        result = identity_change(id, denied_ok);
    }
    if (result >= 0) {
        result = identity_set(none);
    }
    return result < 0 ? result : identity_verify_empty();
}
