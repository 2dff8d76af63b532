/* The decompressed size of an LZ4 block. A library that is told a larger size leaves the rest of its buffer unchanged.
 */
#ifndef RMQ_LZ4_SIZE_H
#define RMQ_LZ4_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* A length whose first four bits are known: 15 means that bytes to be added follow, the last one below 255. */
static inline const uint8_t *rmq_lz4_length(const uint8_t *p, const uint8_t *end, int64_t *length) {
    if (*length < 15) return p;
    while (p < end) {
        *length += *p;
        if (*p++ < 255) return p;
    }
    return NULL;
}

/* The decompressed size; -1: no LZ4 block. Only the lengths of matches are checked. */
static int64_t rmq_lz4_size(const uint8_t *p, int64_t size) {
    const uint8_t *const end = p + size;
    int64_t total = 0;
    while (p < end) {
        const uint8_t token = *p++;
        int64_t literals = token >> 4, match = token & 15;
        if ((p = rmq_lz4_length(p, end, &literals)) == NULL || literals > end - p) return -1;
        p += literals;
        total += literals;
        if (p == end) return total;
        if (end - p < 2 || (p = rmq_lz4_length(p + 2, end, &match)) == NULL) return -1;
        total += match + 4;
    }
    return -1;
}

#endif
