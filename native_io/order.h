/* The order of entries that wrap units: each has a number, one more than that of the entry before it, and a term that never
 * descends. An entry without a unit is as long as its header, and counts by that length. */
#ifndef RMQ_ORDER_H
#define RMQ_ORDER_H

#include <stdint.h>

#include "unit.h"

typedef struct {
    int64_t number, term;
    int64_t end; /* the physical offset behind the entry */
} rmq_entry;

/* How many of n units, whose physical offsets are `positions`, have entries that go on from each other. The first one is asked
 * if it `follows` the entry `last`; else `last` is its entry, if `is_known`. At the end it is the last one's in order; unknown
 * where only the first unit is in order and its entry was not known. A header or a unit that the window does not show is not
 * in order. */
static int64_t rmq_in_order(const uint8_t *window, int64_t size, int64_t base, int64_t header, int64_t at_number,
                            int64_t at_term, const int64_t *positions, int64_t n, int follows, rmq_entry *last,
                            int *is_known) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = positions[i];
        if (at < base || at - base > size - 4) return i;
        const uint8_t *const unit = window + (at - base);
        if (i > 0 || follows) {
            if (at - base < header) return i;
            const int64_t number = rmq_i64(unit - header + at_number), term = rmq_i64(unit - header + at_term);
            /* Entries without a unit fill it. Unsigned, as a unit's size may be any number. */
            const int64_t gap = (int64_t)((uint64_t)at - (uint64_t)header - (uint64_t)last->end);
            if (gap < 0 || gap % header != 0) return i;
            const uint64_t due = (uint64_t)last->number + 1 + (uint64_t)(gap / header);
            if (*is_known && ((uint64_t)number != due || term < last->term)) return i;
            last->number = number;
            last->term = term;
            *is_known = 1;
        }
        last->end = (int64_t)((uint64_t)at + (uint64_t)(int64_t)rmq_i32(unit));
    }
    return n;
}

#endif
