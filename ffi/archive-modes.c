/* archive-modes.c - see archive-modes.h. The list grows in memory that the kernel charges to the
   sandbox, as everything else that the stream fills; few directories are ever in it. */
#include "archive-modes.h"

#include "beneath.h"
#include "cprg.h"
#include "sys.h"
#include "text.h"

#define MODES_FIRST 65536u

/* Each record: the path, its NUL, then this. Read from the end. */
struct modes_tail {
    uint32_t mode;
    uint32_t path_size;
};

static unsigned char *modes_list;
static size_t modes_length;
static size_t modes_capacity;

static int modes_reserve(size_t more) {
    size_t capacity = modes_capacity == 0 ? MODES_FIRST : modes_capacity;
    while (capacity - modes_length < more) {
        capacity *= 2;
    }
    if (capacity == modes_capacity) {
        return 0;
    }
    long address =
        modes_capacity == 0
            ? sys_mmap(capacity, K_PROT_READ | K_PROT_WRITE, K_MAP_PRIVATE | K_MAP_ANONYMOUS)
            : sys_mremap((uintptr_t)modes_list, modes_capacity, capacity);
    if (address < 0) {
        return (int)address;
    }
    modes_list = (unsigned char *)(uintptr_t)address;
    modes_capacity = capacity;
    return 0;
}

int archive_modes_add(const char *path, uint32_t mode) {
    struct modes_tail tail = {mode, (uint32_t)strlen(path) + 1};
    if ((mode & 0700) == 0700) {
        return 0;
    }
    int result = modes_reserve(tail.path_size + sizeof tail);
    if (result < 0) {
        return result;
    }
    memcpy(modes_list + modes_length, path, tail.path_size);
    memcpy(modes_list + modes_length + tail.path_size, &tail, sizeof tail);
    modes_length += tail.path_size + sizeof tail;
    return 0;
}

int archive_modes_apply(int base) {
    while (modes_length > 0) {
        struct modes_tail tail;
        modes_length -= sizeof tail;
        memcpy(&tail, modes_list + modes_length, sizeof tail);
        modes_length -= tail.path_size;
        const char *path = (const char *)modes_list + modes_length;
        int fd = beneath_open(base, path[0] == '\0' ? "." : path,
                              K_O_RDONLY | K_O_DIRECTORY | K_O_NOFOLLOW, 0,
                              K_RESOLVE_BENEATH | K_RESOLVE_NO_SYMLINKS);
        int result = fd < 0 ? fd : sys_fchmod(fd, tail.mode);
        if (fd >= 0) {
            (void)sys_close(fd);
        }
        if (result < 0) {
            return result;
        }
    }
    return 0;
}
