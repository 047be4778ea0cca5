/* text.c - see text.h. */
#include "text.h"

#include "cprg.h"

/*** What compilers call ***/

#ifndef CPRG_HOSTED /* a hosted build (sanitizers) takes libc's */

/* The empty asm keeps the compiler from turning a loop into a call of the function around it. */
#define KEEP_LOOP() __asm__ volatile("" ::: "memory")

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
#if defined(__x86_64__)
    void *end = to;
    __asm__ volatile("rep movsb" : "+D"(end), "+S"(from), "+c"(count)::"memory");
#else
    unsigned char *target = to;
    const unsigned char *source = from;
    for (; count >= 8; count -= 8, target += 8, source += 8) {
        uint64_t word;
        __builtin_memcpy(&word, source, 8);
        __builtin_memcpy(target, &word, 8);
        KEEP_LOOP();
    }
    for (; count > 0; count--) {
        *target++ = *source++;
        KEEP_LOOP();
    }
#endif
    return to;
}

void *memmove(void *to, const void *from, size_t count) {
    unsigned char *target = to;
    const unsigned char *source = from;
    if (target <= source || target >= source + count) {
        return memcpy(to, from, count); /* both directions of memcpy above go upwards */
    }
    while (count-- > 0) {
        target[count] = source[count];
        KEEP_LOOP();
    }
    return to;
}

void *memset(void *to, int byte, size_t count) {
#if defined(__x86_64__)
    void *end = to;
    __asm__ volatile("rep stosb" : "+D"(end), "+c"(count) : "a"(byte) : "memory");
#else
    unsigned char *target = to;
    for (; count > 0; count--) {
        *target++ = (unsigned char)byte;
        KEEP_LOOP();
    }
#endif
    return to;
}

int memcmp(const void *a, const void *b, size_t count) {
    const unsigned char *left = a;
    const unsigned char *right = b;
    for (; count > 0; count--, left++, right++) {
        if (*left != *right) {
            return *left - *right;
        }
        KEEP_LOOP();
    }
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
        KEEP_LOOP();
    }
    return length;
}

#endif

/*** Strings and numbers ***/

bool text_equal(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

bool text_starts_with(const char *text, const char *prefix) {
    while (*prefix != '\0') {
        if (*text++ != *prefix++) {
            return false;
        }
    }
    return true;
}

size_t text_append(char *buffer, size_t capacity, size_t length, const char *text) {
    size_t added = strlen(text);
    if (length >= capacity || added >= capacity - length) {
        return 0;
    }
    memcpy(buffer + length, text, added + 1);
    return length + added;
}

size_t text_append_number(char *buffer, size_t capacity, size_t length, uint64_t number) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return text_append(buffer, capacity, length, digits + at);
}

uint64_t text_read_number(const char *text, const char **end) {
    uint64_t number = 0;
    while (*text >= '0' && *text <= '9') {
        number = number * 10 + (uint64_t)(*text++ - '0');
    }
    *end = text;
    return number;
}

/*** Paths ***/

bool path_is_plain(const char *path, unsigned depth_max) {
    unsigned depth = 0;
    size_t length = 0;
    for (;;) {
        const char *component = path + length;
        size_t size = 0;
        while (component[size] != '\0' && component[size] != '/') {
            size++;
        }
        bool dots = (size == 1 && component[0] == '.') ||
                    (size == 2 && component[0] == '.' && component[1] == '.');
        length += size;
        if (size == 0 || dots || ++depth > depth_max || length >= CPRG_PATH_MAX) {
            return false;
        }
        if (path[length++] == '\0') {
            return true;
        }
    }
}

const char *path_name(const char *path) {
    const char *name = path;
    for (; *path != '\0'; path++) {
        if (*path == '/') {
            name = path + 1;
        }
    }
    return name;
}
