/* The plain walk, which lists where units begin, and the search for the first unit. */
#ifndef RMQ_SCAN_H
#define RMQ_SCAN_H

#include <stdint.h>
#include <string.h>

#include "sums.h"
#include "walk.h"

/* Walk, at most `capacity` units; where they begin goes to positions[0 .. w->count). */
static void rmq_scan(rmq_walk *w, int64_t *positions, int64_t capacity) {
    int64_t at = w->position, n = 0;
    int status = RMQ_FULL;
    while (n < capacity) {
        rmq_unit u;
        status = rmq_next(w, &at, w->verify_crc, &u, &w->why);
        if (status != RMQ_OK) break;
        positions[n++] = at;
        at += u.total;
        status = RMQ_FULL;
    }
    w->position = at;
    w->count = n;
    w->status = status;
}

/* Could a unit begin at `at`, by the stop and the segment's end? */
static inline int rmq_may_begin(const rmq_walk *w, int64_t at) {
    return at < w->stop && w->segment_end - at >= RMQ_SMALLEST_UNIT + RMQ_BLANK_SIZE;
}

/* The unit at `at`, as far as the window shows it: RMQ_OK, or why there is none.
 * `from`: where the search began. */
static inline int rmq_found(rmq_walk *w, int64_t from, int64_t at, rmq_sums *sums) {
    rmq_unit u;
    const int64_t begin = at - w->base;
    const int status = rmq_unit_at(w->window + begin, w->size - begin, at, w->segment_end - at, 0, &u, &w->why);
    if (status != RMQ_OK || !w->verify_crc || u.body_length == 0) return status;
    const int64_t body = u.body - w->window, end = body + u.body_length;
    return rmq_compare_crc(&u, rmq_sum(sums, body, end, w->base + end - from), &w->why);
}

/* Go on to the first position before the stop at which a whole unit stands: RMQ_OK; or RMQ_LIMIT when there is none, or
 * RMQ_MORE when the window ends too early to decide (the search then continues at the position). */
static void rmq_find(rmq_walk *w) {
    const int64_t from = w->position;
    int64_t at = from;
    rmq_sums sums = rmq_new_sums(w->window, w->size);
    w->status = RMQ_LIMIT;
    for (; rmq_may_begin(w, at); at++) {
        const int64_t magic_at = at - w->base + 4;
        const uint8_t *hit = NULL;
        if (magic_at < w->size)
            hit = memchr(w->window + magic_at, RMQ_MAGIC_V1 >> 24 & 0xFF, (size_t)(w->size - magic_at));
        if (hit == NULL) {
            const int64_t last = w->base + w->size - 4; /* the first start whose magic the window cannot show */
            if (last > at) at = last;
            w->why.expected = RMQ_BLANK_SIZE;
            if (rmq_may_begin(w, at)) w->status = RMQ_MORE;
            break;
        }
        at = w->base + (hit - w->window) - 4;
        if (!rmq_may_begin(w, at)) break;
        const int status = rmq_found(w, from, at, &sums);
        if (status == RMQ_OK || status == RMQ_MORE) {
            w->status = status;
            break;
        }
    }
    w->position = at;
    rmq_free_sums(&sums);
}

#endif
