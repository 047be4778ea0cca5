/* files.c - see files.h. */
#include "files.h"

#include <string.h>

#include "cprg.h"
#include "kernel.h"
#include "sys.h"

/*** Paths ***/

/* Reads the path to its end, so that AddressSanitizer sees where that is. */
const char *fake_path(long address) {
    const char *path = (const char *)address;
    FAKE_CHECK(strlen(path) < CPRG_PATH_MAX);
    return path;
}

static bool fake_is_stage(const char *name) {
    return strncmp(name, ".cprg-stage-", 12) == 0;
}

/* The rule that keeps names inside: relative to a directory there is one component, no "..". */
static void fake_check_name(long dir, const char *path) {
    if (dir == K_AT_FDCWD) {
        FAKE_CHECK(path[0] == '/');
        return;
    }
    fake_check_fd(dir);
    if (fake.single_names) {
        FAKE_CHECK(path[0] != '\0' && strchr(path, '/') == NULL);
        FAKE_CHECK(strcmp(path, "..") != 0);
    }
}

long fake_opened(long dir, const char *path) {
    int fd = fake_open();
    if (fd >= 0) {
        int depth = dir == K_AT_FDCWD ? 1 : fake.depth[dir];
        int step = strcmp(path, "..") == 0 ? -1 : (strcmp(path, ".") == 0 ? 0 : 1);
        fake.depth[fd] = (uint16_t)(depth + step);
    }
    return fd;
}

long fake_openat(long dir, long address, long flags) {
    const char *path = fake_path(address);
    bool up = strcmp(path, "..") == 0; /* tree.c, which checks where it came */
    bool here = strcmp(path, ".") == 0;
    if (!up) {
        fake_check_name(dir, path);
    }
    /* A link as the last component is followed in paths of the host or the request alone, and by
       mount_attach_legacy() in the data tmpfs, where none has been made. */
    bool legacy = fake.scratch != NULL && flags == (K_O_PATH | K_O_CLOEXEC);
    FAKE_CHECK(dir == K_AT_FDCWD || up || here || legacy || (flags & K_O_NOFOLLOW) != 0);
    if (fake_is_stage(path) && (flags & K_O_CREAT) != 0) {
        FAKE_CHECK((flags & K_O_EXCL) != 0);
        fake.stages++;
        fake.leaf = true;
    }
    return fake_opened(dir, path);
}

long fake_openat2(long dir, long address, long how_address) {
    const char *path = fake_path(address);
    const struct kernel_open_how *how = (const struct kernel_open_how *)how_address;
    bool beneath = (how->resolve & K_RESOLVE_BENEATH) != 0 &&
                   (how->resolve & K_RESOLVE_NO_SYMLINKS) != 0 && path[0] != '/';
    fake_check_fd(dir);
    FAKE_CHECK(beneath || ((how->resolve & K_RESOLVE_IN_ROOT) != 0 && path[0] == '/'));
    FAKE_CHECK(strcmp(path, ".") == 0 || strstr(path, "/../") == NULL);
    if ((fake.header[FAKE_MISSING] & FAKE_NO_OPENAT2) != 0) {
        return -K_ENOSYS;
    }
    return fake_opened(dir, path);
}

long fake_make(enum sys_number number, long dir, long address) {
    const char *path = fake_path(address);
    bool made = number == NR_mkdirat || number == NR_symlinkat;
    fake_check_name(dir, path);
    if (made && fake_is_stage(path)) {
        fake.stages++;
        fake.leaf = number == NR_symlinkat;
    }
    return 0;
}

long fake_unlinkat(long dir, long address, long flags) {
    const char *path = fake_path(address);
    fake_check_name(dir, path);
    bool leaf = fake_is_stage(path) && fake.leaf;
    if (!leaf && flags == 0 && fake.header[FAKE_FULL] > 0) {
        return -K_EISDIR;
    }
    if (!leaf && fake.header[FAKE_FULL] > 0) {
        fake.header[FAKE_FULL]--;
        return -K_ENOTEMPTY;
    }
    fake.stages -= fake_is_stage(path) ? 1 : 0;
    return 0;
}

long fake_renameat2(long from_dir, long from, long to_dir, long to, long flags) {
    fake_check_name(from_dir, fake_path(from));
    fake_check_name(to_dir, fake_path(to));
    FAKE_CHECK(from_dir == to_dir && fake_is_stage(fake_path(from)));
    if (flags == K_RENAME_NOREPLACE && (fake.header[FAKE_TARGET] & 1) != 0) {
        return -K_EEXIST;
    }
    fake.commits++;
    fake.stages -= flags == K_RENAME_EXCHANGE ? 0 : 1;
    return 0;
}

long fake_statx(long dir, long address, long out_address) {
    struct kernel_statx *out = (struct kernel_statx *)out_address;
    const char *path = fake_path(address);
    *out = (struct kernel_statx){.mode = K_S_IFREG | 0644};
    if (path[0] == '\0') {
        fake_check_fd(dir);
        out->ino = fake.depth[dir];
        out->mode = (fake.depth[dir] & 1) != 0 ? K_S_IFDIR | 0755 : K_S_IFREG | 0644;
    }
    return 0;
}

/* Two names and the two that every directory has, once. */
long fake_getdents64(long fd, long address, long capacity) {
    static const char *const names[] = {".", "..", "d", "f"};
    unsigned char *at = (unsigned char *)address;
    fake_check_fd(fd);
    FAKE_CHECK(capacity >= 4L * 24);
    if (fake.listed[fd]) {
        return 0;
    }
    fake.listed[fd] = true;
    for (size_t i = 0; i < 4; i++) {
        struct kernel_dirent *entry = (struct kernel_dirent *)(at + i * (size_t)24);
        memset(entry, 0, 24);
        entry->reclen = 24;
        memcpy(entry->name, names[i], strlen(names[i]) + 1);
    }
    return 4L * 24;
}

/*** Bytes ***/

static size_t fake_chunk(size_t wanted) {
    size_t chunk = fake.header[FAKE_CHUNK];
    return chunk == 0 || wanted < chunk ? wanted : chunk;
}

long fake_read(long fd, long address, size_t capacity) {
    size_t left = fake.text_size - fake.text_at;
    size_t count = fake_chunk(left < capacity ? left : capacity);
    fake_check_fd(fd);
    memcpy((void *)address, fake.text + fake.text_at, count);
    fake.text_at += count;
    return (long)count;
}

long fake_write(long fd, long address, size_t count) {
    const unsigned char *bytes = (const unsigned char *)address;
    static volatile unsigned char last;
    fake_check_fd(fd);
    if (count == sizeof(struct cprg_report) && fake_hooks.report != NULL) {
        return fake_hooks.report((int)fd, bytes, count);
    }
    for (size_t i = 0; i < count; i++) {
        last = bytes[i];
    }
    (void)last;
    return (long)fake_chunk(count);
}

long fake_sendmsg(long fd, long address) {
    const struct kernel_msghdr *header = (const struct kernel_msghdr *)address;
    const struct kernel_cmsghdr *control = header->control;
    fake_check_fd(fd);
    FAKE_CHECK(fake_hooks.sendmsg != NULL && header->iov_count == 1);
    return fake_hooks.sendmsg(
        (int)fd, header->iov->base, header->iov->length, (const int32_t *)(control + 1),
        control == NULL ? 0 : (control->length - sizeof *control) / sizeof(int32_t));
}

/*** Mounts and memory ***/

static bool fake_mount_target(const char *path) {
    return strcmp(path, ".") == 0 || strcmp(path, "/") == 0 ||
           (fake.scratch != NULL && strcmp(path, fake.scratch) == 0) ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

long fake_mount(long target, long flags, long options) {
    const char *path = fake_path(target);
    if (options != 0) {
        (void)fake_path(options);
    }
    if (fake.top != NULL && (flags & K_MS_REMOUNT) != 0) {
        size_t length = strlen(fake.top);
        FAKE_CHECK(strncmp(path, fake.top, length) == 0);
        FAKE_CHECK(path[length] == '\0' || path[length] == '/');
        return 0;
    }
    FAKE_CHECK(fake.top == NULL ? fake_mount_target(path) || (flags & K_MS_REMOUNT) != 0
                                : strncmp(path, "/proc/self/fd/", 14) == 0);
    return 0;
}

long fake_readlinkat(long address, long capacity) {
    const char *top = fake.top == NULL ? "/scratch" : fake.top;
    size_t length = strlen(top) < (size_t)capacity ? strlen(top) : (size_t)capacity;
    memcpy((void *)address, top, length);
    return (long)length;
}
