/* Units of a ConsumeQueue as they stand in its files: which of them count, and their fields as columns. The layout of a
 * unit is in rmqstore_spark/store/format/queue_block.py. */
#ifndef RMQ_QUEUE_UNITS_H
#define RMQ_QUEUE_UNITS_H

#include <stdint.h>

#include "queues.h"
#include "unit.h"

enum {
    RMQ_BATCH_QUEUE_UNIT_SIZE = 46,
    RMQ_AT_BATCH_TIME = 20,
    RMQ_AT_BATCH_BASE = 28,
    RMQ_AT_BATCH_COUNT = 36,
    RMQ_PRE_BLANK_SIZE = INT32_MAX,
    RMQ_LOST_UNIT_SIZE = 9,
};

/* The meaning of a unit. All but the first are units to a broker that starts (ConsumeQueue.recover). */
typedef enum {
    RMQ_UNIT_IS_NOTHING,   /* zeros, or noise: an unused unit */
    RMQ_UNIT_IS_PRE_BLANK, /* a queue offset before the queue's first message */
    RMQ_UNIT_IS_LOST,      /* the queue offset of a message that a salvage has not found */
    RMQ_UNIT_IS_MESSAGE,
} rmq_unit_kind;

static inline int rmq_is_batch_used(const uint8_t *unit) {
    const int64_t base = rmq_i64(unit + RMQ_AT_BATCH_BASE), count = rmq_i16(unit + RMQ_AT_BATCH_COUNT);
    return base >= 0 && count > 0 && base <= INT64_MAX - count;
}

static inline rmq_unit_kind rmq_kind_of_unit(const uint8_t *unit, int is_batch) {
    const int64_t begin = rmq_i64(unit), size = rmq_i32(unit + 8);
    if (size <= 0 || begin < 0 || begin > INT64_MAX - size) return RMQ_UNIT_IS_NOTHING;
    if (is_batch && !rmq_is_batch_used(unit)) return RMQ_UNIT_IS_NOTHING;
    if (begin == 0 && size == RMQ_PRE_BLANK_SIZE) return RMQ_UNIT_IS_PRE_BLANK;
    return size == RMQ_LOST_UNIT_SIZE ? RMQ_UNIT_IS_LOST : RMQ_UNIT_IS_MESSAGE;
}

/* Does a unit point to before a physical offset? A PRE_BLANK one does; one that is not used does not. */
static inline int rmq_is_unit_before(rmq_unit_kind kind, int64_t begin, int64_t position) {
    return kind == RMQ_UNIT_IS_PRE_BLANK || (kind != RMQ_UNIT_IS_NOTHING && begin < position);
}

static inline int rmq_unit_comes_before(const uint8_t *unit, int is_batch, int64_t position) {
    return rmq_is_unit_before(rmq_kind_of_unit(unit, is_batch), rmq_i64(unit), position);
}

/* Columns of units, a row of each for every unit. */
typedef struct {
    int64_t *numbers, *positions, *sizes, *tags_codes;
    int64_t *queue_offsets, *messages; /* of a message, or of lost ones in a BatchCQ; else its number, and 1 */
    int64_t *store_times;              /* of such messages in a BatchCQ; else 0 */
    uint8_t *kinds;
} rmq_unit_columns;

/* Fill the columns of units from a number on. */
static inline void rmq_read_queue_units(const uint8_t *units, int64_t count, int64_t number, int is_batch,
                                        const rmq_unit_columns *to) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *unit = units + i * (is_batch ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE);
        const rmq_unit_kind kind = rmq_kind_of_unit(unit, is_batch);
        const int has_base = is_batch && (kind == RMQ_UNIT_IS_MESSAGE || kind == RMQ_UNIT_IS_LOST);
        to->numbers[i] = number + i;
        to->positions[i] = rmq_i64(unit);
        to->sizes[i] = rmq_i32(unit + 8);
        to->tags_codes[i] = rmq_i64(unit + 12);
        to->queue_offsets[i] = has_base ? rmq_i64(unit + RMQ_AT_BATCH_BASE) : number + i;
        to->messages[i] = has_base ? rmq_i16(unit + RMQ_AT_BATCH_COUNT) : 1;
        to->store_times[i] = has_base ? rmq_i64(unit + RMQ_AT_BATCH_TIME) : 0;
        to->kinds[i] = (uint8_t)kind;
    }
}

/* A walk along a queue that takes the units that point into [start, stop). */
typedef struct {
    int64_t unit_size, start, stop;
    int64_t number; /* of the next unit */
    int64_t end;    /* the physical offset where the last message ends */
    /* What was taken: */
    int64_t *positions, *queue_offsets;
    int32_t *sizes;
    int64_t rows, capacity;
} rmq_queue_walk;

/* Take the units that count among the next ones, as long as there is space; returns the number of units processed. If
 * some are left although there is space, the walk is over: the next unit is the end, or points to `stop` or after it.
 */
static int64_t rmq_take_units(rmq_queue_walk *walk, const uint8_t *units, int64_t count) {
    const int64_t unit_size = walk->unit_size, start = walk->start, stop = walk->stop, capacity = walk->capacity;
    const int is_batch = unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE;
    int64_t rows = walk->rows, end = walk->end, i = 0;
    for (; i < count && rows < capacity; i++) {
        const uint8_t *unit = units + i * unit_size;
        const int64_t begin = rmq_i64(unit);
        const int32_t size = rmq_i32(unit + 8);
        const rmq_unit_kind kind = rmq_kind_of_unit(unit, is_batch);
        if (kind == RMQ_UNIT_IS_PRE_BLANK || kind == RMQ_UNIT_IS_LOST) continue;
        /* A unit whose message begins before the previous one ends is left over from a truncated log, or noise. */
        if (kind == RMQ_UNIT_IS_NOTHING || begin < end || begin >= stop) break;
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
