/* archive-stream.c - see archive-stream.h. */
#include "archive-stream.h"

#include "sys.h"
#include "text.h"
#include "transfer.h"

static unsigned char stream_buffer[STREAM_BUFFER];

/*** Bytes ***/

int stream_open(struct stream *stream) {
    const uint64_t mask = (uint64_t)1 << (K_SIGTERM - 1);
    *stream = (struct stream){.signal_fd = sys_signalfd4(-1, &mask, K_SFD_FLAGS)};
    return stream->signal_fd < 0 ? stream->signal_fd : 0;
}

/* Reads into the empty rest of the buffer. */
static int stream_fill(struct stream *stream) {
    for (;;) {
        struct kernel_pollfd fds[2] = {{TRANSFER_STREAM_FD, K_POLLIN, 0},
                                       {stream->signal_fd, K_POLLIN, 0}};
        int ready = sys_ppoll(fds, 2, NULL);
        if (ready < 0 && ready != -K_EINTR) {
            return ready;
        }
        if (fds[1].revents != 0) {
            return -K_EINTR;
        }
        long count = sys_read(TRANSFER_STREAM_FD, stream_buffer + stream->end,
                              sizeof stream_buffer - stream->end);
        if (count > 0) {
            stream->end += (size_t)count;
            return 0;
        }
        if (count != -K_EINTR && count != -K_EAGAIN) {
            return count == 0 ? -K_EPIPE : (int)count;
        }
    }
}

long stream_next(struct stream *stream, size_t limit, const unsigned char **bytes) {
    if (stream->start == stream->end) {
        stream->start = 0;
        stream->end = 0;
        int result = stream_fill(stream);
        if (result < 0) {
            return result;
        }
    }
    size_t count = stream->end - stream->start;
    count = count < limit ? count : limit;
    *bytes = stream_buffer + stream->start;
    stream->start += count;
    return (long)count;
}

static int stream_copy(struct stream *stream, void *to, size_t count) {
    unsigned char *target = to;
    while (count > 0) {
        const unsigned char *bytes;
        long got = stream_next(stream, count, &bytes);
        if (got < 0) {
            return (int)got;
        }
        memcpy(target, bytes, (size_t)got);
        target += got;
        count -= (size_t)got;
    }
    return 0;
}

/*** Entries ***/

/* Copies `length` bytes as a string; a NUL among them would hide what follows it. */
static int stream_string(struct stream *stream, char text[CPRG_PATH_MAX], uint64_t length) {
    if (length >= CPRG_PATH_MAX) {
        return -K_EINVAL;
    }
    int result = stream_copy(stream, text, length);
    text[length] = '\0';
    return result < 0 ? result : (strlen(text) == length ? 0 : -K_EINVAL);
}

int stream_entry(struct stream *stream, struct cprg_entry *entry, char path[CPRG_PATH_MAX]) {
    int result = stream_copy(stream, entry, sizeof *entry);
    if (result < 0) {
        return result;
    }
    bool known = entry->type >= CPRG_ENTRY_FILE && entry->type <= CPRG_ENTRY_END;
    bool bare = entry->type == CPRG_ENTRY_DIRECTORY || entry->type == CPRG_ENTRY_END;
    if (entry->magic != CPRG_ENTRY_MAGIC || !known || (bare && entry->size != 0) ||
        (entry->type == CPRG_ENTRY_END && entry->path_length != 0)) {
        return -K_EINVAL;
    }
    entry->mode &= 0777;
    result = stream_string(stream, path, entry->path_length);
    if (result < 0) {
        return result;
    }
    return path[0] == '\0' || path_is_plain(path, CPRG_DEPTH_MAX) ? 0 : -K_EINVAL;
}

int stream_link(struct stream *stream, const struct cprg_entry *entry,
                char content[CPRG_PATH_MAX]) {
    return entry->size == 0 ? -K_EINVAL : stream_string(stream, content, entry->size);
}
