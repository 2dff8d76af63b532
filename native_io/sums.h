/* The CRC-32 of many stretches of a window, for little more than to go over the window once.
 *
 * Bytes that look like a unit may stand in another unit's body, and that one in another body: the time to sum up each
 * body by itself would grow with the square of their number. So once the summed bytes exceed the passed bytes several
 * times over, the sums of the bytes before each step are kept, and a stretch's sum follows from two of them
 * (rmq_crc32_between).
 */
#ifndef RMQ_SUMS_H
#define RMQ_SUMS_H

#include <stdint.h>
#include <stdlib.h>

#include "crc32.h"

enum {
    RMQ_SUMS_STEP = 4096, /* bytes */
    RMQ_SUMS_OFTEN = 4,   /* times that each byte may be summed up before sums are kept */
};

typedef struct {
    const uint8_t *window;
    int64_t size;
    int64_t spent;   /* bytes that were summed up one by one */
    uint32_t *until; /* until[i]: the sum of the first i steps; NULL while none are kept */
    int64_t known;   /* the number of sums kept */
} rmq_sums;

static inline rmq_sums rmq_new_sums(const uint8_t *window, int64_t size) {
    return (rmq_sums){window, size, 0, NULL, 0};
}

static inline void rmq_free_sums(rmq_sums *s) { free(s->until); }

/* The CRC-32 of the first `end` bytes of the window. */
static uint32_t rmq_sum_until(rmq_sums *s, int64_t end) {
    const int64_t step = end / RMQ_SUMS_STEP;
    for (; s->known <= step; s->known++)
        s->until[s->known] =
            rmq_crc32(s->until[s->known - 1], s->window + (s->known - 1) * RMQ_SUMS_STEP, RMQ_SUMS_STEP);
    return rmq_crc32(s->until[step], s->window + step * RMQ_SUMS_STEP, (size_t)(end % RMQ_SUMS_STEP));
}

/* The CRC-32 of the bytes [begin, end) of the window; `passed`: the bytes that the search has passed so far. Without
 * memory for sums the call only takes longer. */
static uint32_t rmq_sum(rmq_sums *s, int64_t begin, int64_t end, int64_t passed) {
    const int64_t size = end - begin;
    if (s->until == NULL && s->spent + size > RMQ_SUMS_OFTEN * passed) {
        s->until = calloc((size_t)(s->size / RMQ_SUMS_STEP + 1), sizeof *s->until);
        s->known = 1;
    }
    if (s->until != NULL) return rmq_crc32_between(rmq_sum_until(s, begin), rmq_sum_until(s, end), (uint64_t)size);
    s->spent += size;
    return rmq_crc32(0, s->window + begin, (size_t)size);
}

#endif
