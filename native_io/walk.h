/* A walk from unit to unit: each begins where the one before it ends, or after what wraps it. Scan, select, decode, dispatch
 * and place take one. */
#ifndef RMQ_WALK_H
#define RMQ_WALK_H

#include <stdint.h>

#include "unit.h"

/* The bytes before each unit of a log whose entries wrap units (DLedger's, say): `header` bytes, with the entry's size
 * and its own physical offset. An entry without a unit is as long as its header. */
typedef struct {
    int64_t header;      /* bytes, 16 or more */
    int64_t at_size;     /* offset in the header of the whole entry's size (i32), */
    int64_t at_position; /* of the physical offset of the entry's first byte (i64), */
    int64_t at_body;     /* and of the size of what is wrapped (i32); -1: the header does not have it */
} rmq_wrapping;

/* Offsets are physical ones. The code that begins a walk has checked that 0 <= base <= position <= base + size <=
 * INT64_MAX, and that segment_end >= 0 (begin_walk in _common.pyx): no sum or difference of them can overflow then. */
typedef struct {
    const uint8_t *window; /* the bytes from `base` on; the caller's, and only for the time of the call */
    int64_t size, base;
    int64_t stop;          /* no unit that begins here or later is looked at */
    int64_t segment_end;
    int verify_crc;
    /* The result so far. */
    int64_t position;      /* the first byte not passed */
    int64_t count;         /* how many units were taken */
    int status;            /* why the walk stopped */
    rmq_finding why;
    const rmq_wrapping *wrapping; /* NULL: units follow each other */
} rmq_walk;

/* Pass the header of the entry at `*at`, and before it those of entries that have no unit: RMQ_OK, and a unit is to be at
 * `*at`, in an entry of `*entry` bytes; 0: no entry begins here, but a unit may, whose entry began before. Or RMQ_LIMIT,
 * RMQ_CROSSES_STOP, RMQ_MORE as of rmq_next, or RMQ_BLANK: such a log's file ends with i32 -1, i32 bytes left. Of a node that
 * was killed just then the latter may be 0 for ever: the node begins the next file all the same. */
static int rmq_unwrap(const rmq_walk *w, int64_t *at, int64_t *entry, rmq_finding *why) {
    const rmq_wrapping *const f = w->wrapping;
    int64_t position = *at;
    int status = RMQ_OK;
    while (position < w->stop) {
        const int64_t available = w->size - (position - w->base), left = w->segment_end - position;
        const uint8_t *const p = w->window + (position - w->base);
        if (left < RMQ_BLANK_SIZE) break; /* rmq_unit_at says that there is no blank */
        const int64_t need = left < f->header ? RMQ_BLANK_SIZE : f->header;
        if (available < need) return rmq_fail(why, RMQ_MORE, position - *at + need, available);
        if (rmq_i32(p) == -1 && (rmq_i32(p + 4) == left || rmq_i32(p + 4) == 0)) {
            status = rmq_fail(why, RMQ_BLANK, left, left);
            break;
        }
        const int64_t size = left < f->header ? 0 : rmq_i32(p + f->at_size);
        if (size < f->header || size > left || rmq_i64(p + f->at_position) != position) break; /* no entry */
        if (position + f->header > w->stop) return rmq_fail(why, RMQ_CROSSES_STOP, w->stop, position + f->header);
        position += f->header;
        if (size > f->header) {
            *entry = size;
            break;
        }
    }
    *at = position;
    return status == RMQ_OK && position >= w->stop ? RMQ_LIMIT : status;
}

/* The bytes that an entry should have in whose place for a unit, at `p`, is none. What its header says besides its size
 * vouches for that size; and where the next entry begins, there is no unit: then the size is damaged, not a unit. */
static inline int64_t rmq_due_size(const rmq_wrapping *f, const uint8_t *p, int64_t available, int64_t at, int64_t entry) {
    const int is_shown = available >= f->header;
    if (is_shown && rmq_i32(p + f->at_size) >= f->header && rmq_i64(p + f->at_position) == at) return f->header;
    return f->at_body < 0 ? entry : f->header + rmq_i32(p - f->header + f->at_body);
}

/* What is wrong in an entry of `entry` bytes, or 0 where no entry begins before `*at`, in which rmq_unit_at has found
 * `status`: as of rmq_next. Not asked of a unit that rmq_fits_entry. An entry must be as long as its header and its unit; if
 * it is not, `*at` goes back to where it begins. Where neither an entry nor anything like a unit is, an entry is missed, not a
 * unit. */
static __attribute__((noinline)) int rmq_wrong_in_entry(const rmq_walk *w, int64_t *at, int64_t entry, int status,
                                                        const rmq_unit *u, rmq_finding *why) {
    const rmq_wrapping *const f = w->wrapping;
    const uint8_t *const p = w->window + (*at - w->base);
    const int64_t available = w->size - (*at - w->base);
    if (entry != 0) {
        if (status != RMQ_OK && available < f->header && w->segment_end - *at >= f->header)
            return rmq_fail(why, RMQ_MORE, f->header, available);
        const int64_t due = status == RMQ_OK ? f->header + u->total : rmq_due_size(f, p, available, *at, entry);
        if (status == RMQ_MORE || (status != RMQ_OK && due == entry)) return status;
        const int64_t said = f->at_body < 0 ? due : f->header + rmq_i32(p - f->header + f->at_body);
        *at -= f->header;
        return rmq_fail(why, RMQ_BAD_ENTRY, due, entry == due ? said : entry);
    }
    if (status == RMQ_OK || status == RMQ_MORE || status == RMQ_NO_BLANK) return status;
    const int32_t first = rmq_i32(p), second = rmq_i32(p + 4);
    if (second == RMQ_MAGIC_V1 || second == RMQ_MAGIC_V2) return status;
    if (first == -1) return rmq_fail(why, RMQ_BAD_BLANK, w->segment_end - *at, second);
    return rmq_fail(why, RMQ_NO_ENTRY, *at, available < f->header ? 0 : rmq_i64(p + f->at_position));
}

/* Is the entry before a unit just as long as both say? */
static inline int rmq_fits_entry(const rmq_wrapping *f, int64_t entry, const rmq_unit *u) {
    return entry == f->header + u->total && (f->at_body < 0 || rmq_i32(u->start - f->header + f->at_body) == u->total);
}

/* The unit at `*at`, or after what wraps it there; then `*at` is where it begins. RMQ_OK, or why there is none before the
 * stop. */
static inline int rmq_next(const rmq_walk *w, int64_t *at, int verify_crc, rmq_unit *u, rmq_finding *why) {
    if (*at >= w->stop) return RMQ_LIMIT;
    const int64_t began = *at;
    /* A sound unit is checked without a call: where the caller's code has AVX and the called one not, passing from one to the
     * other costs as much as a small message's decoding. */
    const int is_wrapped = __builtin_expect(w->wrapping != NULL, 0);
    int64_t entry = 0;
    int status = is_wrapped ? rmq_unwrap(w, at, &entry, why) : RMQ_OK;
    if (status != RMQ_OK) return status;
    const int64_t in_window = *at - w->base;
    status = rmq_unit_at(w->window + in_window, w->size - in_window, *at, w->segment_end - *at, verify_crc, u, why);
    if (is_wrapped && !(status == RMQ_OK && rmq_fits_entry(w->wrapping, entry, u)))
        status = rmq_wrong_in_entry(w, at, entry, status, u, why);
    if (status == RMQ_OK && *at + u->total > w->stop) return rmq_fail(why, RMQ_CROSSES_STOP, w->stop, *at + u->total);
    if (status == RMQ_MORE && *at > began) { /* so that the caller shows the header once more */
        why->expected += *at - began;
        *at = began;
    }
    return status;
}

/* While a unit is worked on, the head of the next one comes from memory. */
static inline void rmq_prefetch_next(const rmq_unit *u) {
    __builtin_prefetch(u->start + u->total);
    __builtin_prefetch(u->start + u->total + 64);
}

#endif
