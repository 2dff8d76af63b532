/* Units of a ConsumeQueue as they stand in its files: which of them count, and their fields as columns. What the bytes are
 * says rmqstore_spark/store/consumequeue.py. */
#ifndef RMQ_QUEUE_UNITS_H
#define RMQ_QUEUE_UNITS_H

#include <stdint.h>

#include "queues.h"
#include "unit.h"

enum { RMQ_BATCH_QUEUE_UNIT_SIZE = 46, RMQ_AT_BATCH_BASE = 28, RMQ_PRE_BLANK_SIZE = INT32_MAX, RMQ_LOST_UNIT_SIZE = 9 };

typedef enum {
    RMQ_UNIT_COUNTS,
    RMQ_UNIT_IS_BLANK, /* stands for a queue offset before the queue's first message, or for that of a lost one */
    RMQ_UNIT_IS_END,   /* not used; or it begins before the one before it ends: a truncated log has left it over, or it is noise */
} rmq_unit_kind;

/* What a unit is, after others of which the last ends at the physical offset `end`. */
static inline rmq_unit_kind rmq_kind_of_unit(int64_t begin, int64_t size, int64_t end) {
    if (size <= 0 || begin < 0 || begin > INT64_MAX - size) return RMQ_UNIT_IS_END;
    if ((begin == 0 && size == RMQ_PRE_BLANK_SIZE) || size == RMQ_LOST_UNIT_SIZE) return RMQ_UNIT_IS_BLANK;
    return begin >= end ? RMQ_UNIT_COUNTS : RMQ_UNIT_IS_END;
}

/* A walk along a queue that takes the units that point into [start, stop). */
typedef struct {
    int64_t unit_size, start, stop;
    int64_t number; /* of the next unit */
    int64_t end;    /* where the last one ends, as a physical offset */
    /* What was taken: */
    int64_t *positions, *queue_offsets;
    int32_t *sizes;
    int64_t rows, capacity;
} rmq_queue_walk;

/* Take what counts of the next units, as long as there is space; answers how many it has done with. Where these are not
 * all though there is space, the walk is over: the next one is the end, or it points to `stop` or after it. */
static int64_t rmq_take_units(rmq_queue_walk *walk, const uint8_t *units, int64_t count) {
    const int64_t unit_size = walk->unit_size, start = walk->start, stop = walk->stop, capacity = walk->capacity;
    const int is_batch = unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE;
    int64_t rows = walk->rows, end = walk->end, i = 0;
    for (; i < count && rows < capacity; i++) {
        const uint8_t *unit = units + i * unit_size;
        const int64_t begin = rmq_i64(unit);
        const int32_t size = rmq_i32(unit + 8);
        const rmq_unit_kind kind = rmq_kind_of_unit(begin, size, end);
        if (kind == RMQ_UNIT_IS_BLANK) continue;
        if (kind == RMQ_UNIT_IS_END || begin >= stop) break;
        end = begin + size;
        if (begin < start) continue;
        walk->positions[rows] = begin;
        walk->sizes[rows] = size;
        walk->queue_offsets[rows] = is_batch ? rmq_i64(unit + RMQ_AT_BATCH_BASE) : walk->number + i;
        rows += 1;
    }
    walk->rows = rows;
    walk->end = end;
    walk->number += i;
    return i;
}

#endif
