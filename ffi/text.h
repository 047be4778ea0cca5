/*
 * text.h - the memory functions that compilers call by themselves, and the few operations on
 * strings, paths and numbers that this tree needs. No allocation: the caller brings the memory.
 */
#ifndef CPRG_TEXT_H
#define CPRG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
int memcmp(const void *a, const void *b, size_t count);
size_t strlen(const char *text);

bool text_equal(const char *a, const char *b);
bool text_starts_with(const char *text, const char *prefix);

/* Appends to a NUL-terminated buffer: the new length, or 0 when it does not fit (never cut). */
size_t text_append(char *buffer, size_t capacity, size_t length, const char *text);
/* The same for a decimal number. */
size_t text_append_number(char *buffer, size_t capacity, size_t length, uint64_t number);
/* Reads decimal digits up to the first other byte; *end is that byte. */
uint64_t text_read_number(const char *text, const char **end);

/*
 * One rule for every path that somebody else sent: 1 to CPRG_PATH_MAX - 1 bytes, components neither
 * empty nor "." nor "..", at most depth_max of them, no slash at the end. `path` has no slash in
 * front: skip the one of an absolute path.
 */
bool path_is_plain(const char *path, unsigned depth_max);
/* The part after the last slash. */
const char *path_name(const char *path);

#endif
