/* Text as columns show it: bytes that are not UTF-8 appear as U+FFFD. */
#ifndef RMQ_UTF8_H
#define RMQ_UTF8_H

#include <stdint.h>
#include <string.h>

static const uint8_t rmq_replacement[3] = {0xEF, 0xBF, 0xBD}; /* U+FFFD */

/* How many of the `n` > 0 bytes at `p` are one character; or, less than 0, how many are shown as one U+FFFD: the
 * beginning of a broken character (Unicode's maximal subpart, as Python's and Java's decoders take it), or one byte. */
static inline int rmq_character(const uint8_t *p, int64_t n) {
    const uint8_t first = p[0];
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return -1;
    const int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    /* The second byte: no character in more bytes than it needs, no surrogate, nothing above U+10FFFF. */
    uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < size; i++) {
        if (i >= n || p[i] < least || p[i] > most) return -i;
        least = 0x80;
        most = 0xBF;
    }
    return size;
}

/* `n` bytes at `p`, as they are shown, into `to`: how many bytes that gives, or -1 when they are more than `room`. */
static int64_t rmq_show(const uint8_t *p, int64_t n, uint8_t *to, int64_t room) {
    int64_t size = 0;
    while (n > 0) {
        const int taken = rmq_character(p, n), width = taken < 0 ? -taken : taken, shown = taken < 0 ? 3 : taken;
        if (shown > room - size) return -1;
        memcpy(to + size, taken < 0 ? rmq_replacement : p, (size_t)shown);
        size += shown;
        p += width;
        n -= width;
    }
    return size;
}

#endif
