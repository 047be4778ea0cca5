/* archive-stream.h - the reading end of an archive stream: bytes, then checked entries. */
#ifndef CPRG_ARCHIVE_STREAM_H
#define CPRG_ARCHIVE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "cprg.h"

#define STREAM_BUFFER 65536u

struct stream {
    int signal_fd; /* SIGTERM, blocked, is read here */
    size_t start;
    size_t end;
};

/* Fails when the stream ends, and when SIGTERM comes while it waits (-EINTR). 0 or -errno. */
int stream_open(struct stream *stream);
/* The next 1 to limit bytes: how many, *bytes says where until the next call; or -errno. */
long stream_next(struct stream *stream, size_t limit, const unsigned char **bytes);
/* The next header and its path, which is checked and NUL-terminated. -EINVAL: malformed. */
int stream_entry(struct stream *stream, struct cprg_entry *entry, char path[CPRG_PATH_MAX]);
/* The content of a link: a string that a link can hold. */
int stream_link(struct stream *stream, const struct cprg_entry *entry, char content[CPRG_PATH_MAX]);

#endif
