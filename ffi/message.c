/* message.c - see message.h. */
#include "message.h"

#include <stddef.h>

#include "cprg.h"

static const char *message_bounded_text(const struct message *message, uint32_t offset,
                                        uint32_t length_max) {
    if (offset == 0 || offset >= message->length) {
        return NULL;
    }
    const char *text = (const char *)message->bytes + offset;
    uint32_t room = message->length - offset;
    for (uint32_t i = 0; i < room && i < length_max; i++) {
        if (text[i] == '\0') {
            return text;
        }
    }
    return NULL;
}

const char *message_text(const struct message *message, uint32_t offset) {
    return message_bounded_text(message, offset, message->length);
}

const char *message_path_text(const struct message *message, uint32_t offset) {
    return message_bounded_text(message, offset, CPRG_PATH_MAX);
}

const void *message_span(const struct message *message, uint32_t offset, uint32_t count,
                         uint32_t size, uint32_t align) {
    uint64_t end = (uint64_t)offset + (uint64_t)count * size;
    if (end > message->length || offset % align != 0 || (offset == 0 && count > 0)) {
        return NULL;
    }
    return message->bytes + offset;
}
