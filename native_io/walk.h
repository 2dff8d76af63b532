/* A walk from unit to unit: each begins where the one before it ends. Scan, select, decode, dispatch and place take one. */
#ifndef RMQ_WALK_H
#define RMQ_WALK_H

#include <stdint.h>

#include "unit.h"

/* Offsets are physical ones. What begins a walk has checked that 0 <= base <= position <= base + size <= INT64_MAX, and that
 * segment_end >= 0 (begin_walk in _common.pyx): no sum or difference of them can overflow then. */
typedef struct {
    const uint8_t *window; /* the bytes from `base` on; the caller's, and only for the time of the call */
    int64_t size, base;
    int64_t stop;          /* no unit that begins here or later is looked at */
    int64_t segment_end;
    int verify_crc;
    /* What has come of it so far. */
    int64_t position;      /* the first byte that it has not passed */
    int64_t count;         /* how many units were taken */
    int status;            /* why it stopped */
    rmq_finding why;
} rmq_walk;

/* The unit at `at`: RMQ_OK, or why there is none before the stop. */
static inline int rmq_next(const rmq_walk *w, int64_t at, int verify_crc, rmq_unit *u, rmq_finding *why) {
    if (at >= w->stop) return RMQ_LIMIT;
    const int64_t in_window = at - w->base;
    const int status =
        rmq_unit_at(w->window + in_window, w->size - in_window, at, w->segment_end - at, verify_crc, u, why);
    if (status == RMQ_OK && at + u->total > w->stop) return rmq_fail(why, RMQ_CROSSES_STOP, w->stop, at + u->total);
    return status;
}

/* While a unit is worked on, the head of the next one comes from memory. */
static inline void rmq_prefetch_next(const rmq_unit *u) {
    __builtin_prefetch(u->start + u->total);
    __builtin_prefetch(u->start + u->total + 64);
}

#endif
