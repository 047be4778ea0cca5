/* files.h - the fake kernel's files: system calls on paths, bytes and mounts. See kernel.h. */
#ifndef CPRG_FUZZ_FILES_H
#define CPRG_FUZZ_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "sys.h"

const char *fake_path(long address);
long fake_opened(long dir, const char *path);
long fake_openat(long dir, long address, long flags);
long fake_openat2(long dir, long address, long how_address);
long fake_make(enum sys_number number, long dir, long address);
long fake_unlinkat(long dir, long address, long flags);
long fake_renameat2(long from_dir, long from, long to_dir, long to, long flags);
long fake_statx(long dir, long address, long out_address);
long fake_getdents64(long fd, long address, long capacity);
long fake_read(long fd, long address, size_t capacity);
long fake_write(long fd, long address, size_t count);
long fake_sendmsg(long fd, long address);
long fake_mount(long target, long flags, long options);
long fake_readlinkat(long address, long capacity);

#endif
