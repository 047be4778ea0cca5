/*
 * mount-legacy.c - binding with mount(2) alone, for kernels before 5.12 and filters that hide the
 * newer calls. A bind mount ignores the flags of the call that makes it, and a remount reaches one
 * mount only, so every mount below the target is found in mountinfo (proc_pid_mountinfo(5)) and
 * remounted with its own flags and ours.
 */
#include "mount.h"
#include "sys.h"
#include "text.h"

/* A line longer than this cannot be told apart from the next: an error, never cut. */
#define LEGACY_LINE_MAX 12288u

/*** Paths of descriptors ***/

static void legacy_fd_path(char path[64], int fd) {
    size_t at = text_append(path, 64, 0, "/proc/self/fd/");
    (void)text_append_number(path, 64, at, (uint64_t)fd);
}

/*** Lines of mountinfo ***/

/* Cuts off the next field in place and moves *line behind it. */
static char *legacy_field(char **line) {
    char *field = *line;
    char *end = field;
    while (*end != '\0' && *end != ' ') {
        end++;
    }
    *line = *end == ' ' ? end + 1 : end;
    *end = '\0';
    return field;
}

/* Space, tab, newline and backslash are written as three octal digits. In place. */
static void legacy_unescape(char *text) {
    char *to = text;
    while (*text != '\0') {
        bool octal = text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' &&
                     text[2] <= '7' && text[3] >= '0' && text[3] <= '7';
        if (octal) {
            *to++ = (char)(((text[1] - '0') << 6) | ((text[2] - '0') << 3) | (text[3] - '0'));
            text += 4;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

/* The MS_* bits of a mount's own options. What a remount does not repeat it would clear, which a
   user namespace refuses for flags that it did not set. */
static unsigned legacy_own_flags(const char *options) {
    static const struct {
        const char *name;
        unsigned flag;
    } known[] = {
        {"ro", K_MS_RDONLY},         {"nosuid", K_MS_NOSUID},   {"nodev", K_MS_NODEV},
        {"noexec", K_MS_NOEXEC},     {"noatime", K_MS_NOATIME}, {"nodiratime", K_MS_NODIRATIME},
        {"relatime", K_MS_RELATIME},
    };
    unsigned flags = 0;
    while (*options != '\0') {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            size_t length = strlen(known[i].name);
            bool whole = text_starts_with(options, known[i].name) &&
                         (options[length] == ',' || options[length] == '\0');
            flags |= whole ? known[i].flag : 0;
        }
        while (*options != '\0' && *options++ != ',') {
        }
    }
    return flags;
}

static bool legacy_is_below(const char *path, const char *top) {
    size_t length = strlen(top);
    return text_starts_with(path, top) && (path[length] == '\0' || path[length] == '/');
}

static int legacy_remount_line(char *line, const char *top, unsigned flags) {
    for (int skipped = 0; skipped < 4; skipped++) { /* id, parent, device, root */
        (void)legacy_field(&line);
    }
    char *path = legacy_field(&line);
    const char *options = legacy_field(&line);
    legacy_unescape(path);
    if (!legacy_is_below(path, top)) {
        return 0;
    }
    return sys_mount(NULL, path, NULL, K_MS_REMOUNT | K_MS_BIND | flags | legacy_own_flags(options),
                     NULL);
}

/*** The walk ***/

static char legacy_lines[LEGACY_LINE_MAX + 1];

/* Handles the whole lines of the buffer: how many bytes they were, or -errno. */
static long legacy_remount_lines(size_t filled, const char *top, unsigned flags) {
    size_t start = 0;
    for (size_t at = 0; at < filled; at++) {
        if (legacy_lines[at] != '\n') {
            continue;
        }
        legacy_lines[at] = '\0';
        int result = legacy_remount_line(legacy_lines + start, top, flags);
        if (result < 0) {
            return result;
        }
        start = at + 1;
    }
    return start == 0 && filled == LEGACY_LINE_MAX ? -K_E2BIG : (long)start;
}

static int legacy_remount(const char *top, unsigned flags) {
    size_t filled = 0;
    int fd = sys_openat(K_AT_FDCWD, "/proc/self/mountinfo", K_O_RDONLY | K_O_CLOEXEC, 0);
    long result = fd;
    while (result >= 0) {
        result = sys_read(fd, legacy_lines + filled, LEGACY_LINE_MAX - filled);
        if (result <= 0) {
            break;
        }
        filled += (size_t)result;
        result = legacy_remount_lines(filled, top, flags);
        if (result > 0) {
            filled -= (size_t)result;
            memmove(legacy_lines, legacy_lines + result, filled);
        }
    }
    if (fd >= 0) {
        (void)sys_close(fd);
    }
    return (int)result;
}

int mount_legacy_bind(int source, int target, unsigned flags) {
    char source_path[64];
    char target_path[64];
    char top[CPRG_PATH_MAX];
    legacy_fd_path(source_path, source);
    legacy_fd_path(target_path, target);
    int result = sys_mount(source_path, target_path, NULL, K_MS_BIND | K_MS_REC, NULL);
    if (result < 0 || flags == 0) {
        return result;
    }
    long length = sys_readlinkat(K_AT_FDCWD, target_path, top, sizeof top - 1);
    if (length < 0) {
        return (int)length;
    }
    top[length] = '\0';
    return legacy_remount(top, flags);
}
