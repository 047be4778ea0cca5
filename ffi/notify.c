/* notify.c - see notify.h. */
#include "notify.h"

#include "sys.h"
#include "text.h"

/* The kernel writes as much as it says, which may be more than this version knows of. */
#define NOTIFY_ROOM 512
_Static_assert(sizeof(struct kernel_seccomp_notif) <= NOTIFY_ROOM, "notify_receive()");

bool notify_is_possible(void) {
    struct kernel_seccomp_notif_sizes sizes = {0, 0, 0};
    int result = sys_seccomp(K_SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
    return result >= 0 && sizes.notif >= sizeof(struct kernel_seccomp_notif) &&
           sizes.notif <= NOTIFY_ROOM;
}

bool notify_receive(int listener, struct notify_call *call) {
    union {
        struct kernel_seccomp_notif notif;
        unsigned char room[NOTIFY_ROOM];
    } read;
    memset(&read, 0, sizeof read); /* the kernel refuses anything else */
    if (sys_ioctl(listener, K_SECCOMP_IOCTL_NOTIF_RECV, &read) < 0) {
        return false;
    }
    const struct kernel_seccomp_notif *notif = &read.notif;
    bool waits = sys_ioctl(listener, K_SECCOMP_IOCTL_NOTIF_ID_VALID, &read.notif.id) >= 0;
    *call = (struct notify_call){notif->nr, notif->arch, notif->pid, waits};
    return true;
}
