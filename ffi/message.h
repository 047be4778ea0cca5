/* message.h - reading a control message: nothing it says is believed before it is checked. */
#ifndef CPRG_MESSAGE_H
#define CPRG_MESSAGE_H

#include <stdint.h>

struct message {
    const unsigned char *bytes; /* aligned to 8 */
    uint32_t length;
};

/* The string at an offset, its NUL inside the message (and, for a path, within CPRG_PATH_MAX);
   NULL if it is not. Offset 0 is the header, so never a string. */
const char *message_text(const struct message *message, uint32_t offset);
const char *message_path_text(const struct message *message, uint32_t offset);
/* `count` things of `size` bytes at an offset that is a multiple of `align`; NULL if outside. */
const void *message_span(const struct message *message, uint32_t offset, uint32_t count,
                         uint32_t size, uint32_t align);

#endif
