/* identity.c - see identity.h, capabilities(7), user_namespaces(7), credentials(7). */
#include "identity.h"

#include "sys.h"

#define CAP_BIT(capability) (1u << (capability))
/* What building the root takes: mounts and namespaces (SYS_ADMIN), the program's directories
   (CHOWN, DAC_OVERRIDE, FOWNER), the limit of namespaces (SYS_RESOURCE), a nested map of id 0
   (SETFCAP, since Linux 5.12), and what init keeps. All are below 32. */
#define BUILD_CAPABILITIES                                                                         \
    (INIT_CAPABILITIES | CAP_BIT(K_CAP_SETPCAP) | CAP_BIT(K_CAP_SYS_ADMIN) |                       \
     CAP_BIT(K_CAP_CHOWN) | CAP_BIT(K_CAP_DAC_OVERRIDE) | CAP_BIT(K_CAP_FOWNER) |                  \
     CAP_BIT(K_CAP_SYS_RESOURCE) | CAP_BIT(K_CAP_SETFCAP))
/* What init needs later: to become the program, and to signal it. */
#define INIT_CAPABILITIES (CAP_BIT(K_CAP_SETUID) | CAP_BIT(K_CAP_SETGID) | CAP_BIT(K_CAP_KILL))
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
    struct kernel_cap_sets sets[2] = {{0, 0, 0}, {0, 0, 0}};
    int result = identity_get(sets);
    if (result < 0) {
        return result;
    }
    sets[0].inheritable = BUILD_CAPABILITIES;
    result = identity_set(sets);
    for (unsigned cap = 0; cap < 32 && result >= 0; cap++) {
        if ((BUILD_CAPABILITIES & CAP_BIT(cap)) != 0) {
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

int identity_reduce_init(void) {
    const struct kernel_cap_sets kept[2] = {
        {INIT_CAPABILITIES | CAP_BIT(K_CAP_SETPCAP), INIT_CAPABILITIES | CAP_BIT(K_CAP_SETPCAP), 0},
        {0, 0, 0}};
    int result = identity_set(kept); /* ambient capabilities fall with the inheritable ones */
    if (result >= 0) {
        result = sys_prctl(K_PR_SET_DUMPABLE, 0, 0);
    }
    return result < 0 ? result : sys_prctl(K_PR_SET_NO_NEW_PRIVS, 1, 0);
}

int identity_seal_init(void) {
    const struct kernel_cap_sets kept[2] = {{INIT_CAPABILITIES, INIT_CAPABILITIES, 0}, {0, 0, 0}};
    for (unsigned cap = 0; cap < CAPABILITIES_MAX; cap++) {
        int result = sys_prctl(K_PR_CAPBSET_DROP, cap, 0);
        if (result == -K_EINVAL && cap > K_CAP_SETFCAP) {
            break; /* above the kernel's last one */
        }
        if (result < 0) {
            return result;
        }
    }
    return identity_set(kept);
}

/*** The program ***/

/* The bounding set cannot grow again, and was empty in init; the ambient set is always a part of
   the permitted and the inheritable one: so three empty sets prove five. */
static int identity_verify_empty(void) {
    struct kernel_cap_sets sets[2] = {{0, 0, 0}, {0, 0, 0}};
    int result = identity_get(sets);
    for (unsigned word = 0; word < 2 && result >= 0; word++) {
        if ((sets[word].effective | sets[word].permitted | sets[word].inheritable) != 0) {
            result = -K_EPERM;
        }
    }
    return result;
}

int identity_become_program(uint32_t id, bool denied_ok) {
    static const struct kernel_cap_sets none[2] = {{0, 0, 0}, {0, 0, 0}};
    int result = identity_change(id, denied_ok);
    if (result >= 0) {
        result = identity_set(none);
    }
    return result < 0 ? result : identity_verify_empty();
}

int identity_no_new_privs(void) {
    int result = sys_prctl(K_PR_SET_NO_NEW_PRIVS, 1, 0);
    return result < 0 ? result : 0;
}
