/*
 * sweep.c - see sweep.h, kill(2), proc_pid_stat(5).
 *
 * kill(-1) reaches every process of the namespace, also one that is being forked, at one instant.
 * SIGKILL sent that way leaves nothing; where some are to be spared, SIGSTOP stands everything
 * still instead, so that the tree can be read before anything in it can fork or be orphaned. Those
 * that are spared are sent SIGCONT at the end, and one that had been stopped runs again.
 */
#include "sweep.h"

#include <stdbool.h>

#include "sys.h"
#include "text.h"

/* More processes than this: nothing is spared. Programs have a limit far beneath. */
#define SWEEP_MAX 8192u

struct sweep_process {
    int32_t pid;
    int32_t parent;
};

/* init's own, never in use twice: one process, one thread. */
static struct sweep_process sweep_table[SWEEP_MAX];
static uint32_t sweep_count;

/* "pid (name) state ppid ...": a name can hold anything, so its end is the last ")". */
static int32_t sweep_parent(int proc, const char *name) {
    char path[32] = "";
    char text[512];
    const char *end;
    size_t at = text_append(path, sizeof path, 0, name);
    if (at == 0 || text_append(path, sizeof path, at, "/stat") == 0) {
        return -1;
    }
    int fd = sys_openat(proc, path, K_O_RDONLY | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    long count = sys_read(fd, text, sizeof text - 1);
    (void)sys_close(fd);
    if (count <= 0) {
        return -1;
    }
    text[count] = '\0';
    while (count > 0 && text[count] != ')') {
        count--;
    }
    /* ") S 1": the state is one letter. */
    return text_starts_with(text + count, ") ") ? (int32_t)text_read_number(text + count + 4, &end)
                                                : -1;
}

/* False when there are too many. */
static bool sweep_add(int proc, const char *name) {
    const char *end;
    uint64_t pid = text_read_number(name, &end);
    if (end == name || *end != '\0' || pid <= 1) {
        return true; /* no process, or init */
    }
    if (sweep_count == SWEEP_MAX) {
        return false;
    }
    int32_t parent = sweep_parent(proc, name);
    if (parent >= 0) {
        sweep_table[sweep_count++] = (struct sweep_process){(int32_t)pid, parent};
    }
    return true;
}

static bool sweep_read(int proc) {
    _Alignas(8) char entries[2048] = {0};
    sweep_count = 0;
    for (;;) {
        long size = sys_getdents64(proc, entries, sizeof entries);
        if (size <= 0) {
            return size == 0;
        }
        for (long at = 0; at < size;) {
            const struct kernel_dirent *entry = (const void *)(entries + at);
            if (!sweep_add(proc, entry->name)) {
                return false;
            }
            at += entry->reclen;
        }
    }
}

static int32_t sweep_parent_of(int32_t pid) {
    for (uint32_t i = 0; i < sweep_count; i++) {
        if (sweep_table[i].pid == pid) {
            return sweep_table[i].parent;
        }
    }
    return 1; /* gone: what it left is init's */
}

static bool sweep_is_spared(int32_t pid, const int32_t *spared, uint32_t count) {
    for (uint32_t climbed = 0; pid > 1 && climbed <= sweep_count; climbed++) {
        for (uint32_t i = 0; i < count; i++) {
            if (spared[i] == pid) {
                return true;
            }
        }
        pid = sweep_parent_of(pid);
    }
    return false;
}

void sweep_kill(const int32_t *spared, uint32_t count) {
    if (count == 0) {
        (void)sys_kill(-1, K_SIGKILL);
        return;
    }
    (void)sys_kill(-1, K_SIGSTOP);
    int proc = sys_openat(K_AT_FDCWD, "/proc", K_O_RDONLY | K_O_DIRECTORY | K_O_CLOEXEC, 0);
    if (proc < 0 || !sweep_read(proc)) {
        (void)sys_kill(-1, K_SIGKILL); /* better all than one too few */
    } else {
        for (uint32_t i = 0; i < sweep_count; i++) {
            if (!sweep_is_spared(sweep_table[i].pid, spared, count)) {
                (void)sys_kill(sweep_table[i].pid, K_SIGKILL);
            }
        }
    }
    if (proc >= 0) {
        (void)sys_close(proc);
    }
    (void)sys_kill(-1, K_SIGCONT);
}
