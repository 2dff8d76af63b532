/* Do the units of all ConsumeQueues cover stretches of the log without gaps and overlaps? One walk along each queue
 * answers for all stretches at once (rmqstore_spark/store/queue_coverage.py explains the proof). */
#ifndef RMQ_TILING_H
#define RMQ_TILING_H

#include <stdint.h>

#include "queue_units.h"
#include "unit.h"

/* A unit of a queue: the message's physical offset, its size, and its queue offset. */
typedef struct {
    int64_t position, size, queue_offset;
} rmq_tile;

typedef struct {
    const int64_t *starts, *stops; /* of the stretches, ascending, none within another */
    const int64_t *segments;       /* where the segment of each begins */
    const int64_t *headers;        /* the bytes before each of its units that belong to the unit (walk.h); NULL: none */
    int64_t stretches;
    /* Of each stretch: */
    uint64_t *open_ends;    /* fingerprint of where units end and have a header behind, without those where others begin */
    int64_t *furthest;      /* where the last unit ends */
    int64_t *counts;        /* units */
    int64_t *crossed;       /* not 0: a unit reaches over its stop */
    int64_t *asked_counts;  /* units of queues that are asked for, */
    uint64_t *asked_prints; /* the fingerprint of where they begin, */
    int64_t *asked_bytes;   /* and their messages' bytes */
    int64_t *latest;        /* where the last unit begins */
    int64_t *followed;      /* the end of the last unit whose queue has a unit in a later segment, too */
    /* The queue that is walked: */
    int64_t unit_size, number, at, end;
    int64_t queue_count, queue_bytes; /* its units in stretches, and their messages' bytes */
    int asked;
    rmq_tile first, last; /* its units in stretches; position -1: none yet */
    int64_t last_at;      /* in which stretch the last one is */
} rmq_tiling;

/* A number that other offsets would hardly have. */
static inline uint64_t rmq_fingerprint(int64_t offset) {
    uint64_t mixed = (uint64_t)offset * UINT64_C(0x9E3779B97F4A7C15);
    mixed ^= mixed >> 32;
    mixed *= UINT64_C(0xD6E8FEB86659FD93);
    return mixed ^ mixed >> 29;
}

/* Begin a queue, whose units come next, from a number on. */
static inline void rmq_begin_tiling(rmq_tiling *t, int64_t number, int64_t unit_size, int asked) {
    t->unit_size = unit_size;
    t->number = number;
    t->asked = asked;
    t->at = t->end = t->queue_count = t->queue_bytes = 0;
    t->first.position = -1;
}

/* The sums of some units of one queue in one stretch, kept apart so that they stay in registers. */
typedef struct {
    int64_t count, bytes;
    int64_t first, last; /* the indices of the first and the last of them */
    uint64_t begins, ends;
} rmq_tiles;

static inline rmq_tile rmq_tile_at(const rmq_tiling *t, const uint8_t *units, int64_t i) {
    const uint8_t *unit = units + i * t->unit_size;
    const int64_t offset = t->unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE ? rmq_i64(unit + RMQ_AT_BATCH_BASE) : t->number + i;
    return (rmq_tile){rmq_i64(unit), rmq_i32(unit + 8), offset};
}

static inline void rmq_add_tiles(rmq_tiling *t, const rmq_tiles *of, const uint8_t *units) {
    const int64_t s = t->at;
    if (of->count == 0) return;
    if (t->first.position >= 0 && t->segments[t->last_at] < t->segments[s]) {
        int64_t *followed = t->followed + t->last_at;
        if (t->last.position + t->last.size > *followed) *followed = t->last.position + t->last.size;
    }
    t->last = rmq_tile_at(t, units, of->last);
    t->last_at = s;
    if (t->first.position < 0) t->first = rmq_tile_at(t, units, of->first);
    t->open_ends[s] += of->ends - of->begins;
    t->counts[s] += of->count;
    t->queue_count += of->count;
    t->queue_bytes += of->bytes;
    if (t->end > t->furthest[s]) t->furthest[s] = t->end;
    if (t->end > t->stops[s]) t->crossed[s] = 1;
    if (t->last.position > t->latest[s]) t->latest[s] = t->last.position;
    if (t->asked) {
        t->asked_counts[s] += of->count;
        t->asked_prints[s] += of->begins;
        t->asked_bytes[s] += of->bytes;
    }
}

/* Add the next units of the queue. 1: the queue goes on; 0: a unit is unused, or begins before the one before it ends
 * (left over from a truncated log, or noise), or is after all stretches. */
static int rmq_add_units(rmq_tiling *t, const uint8_t *units, int64_t count) {
    const int64_t unit_size = t->unit_size;
    const int is_batch = unit_size == RMQ_BATCH_QUEUE_UNIT_SIZE;
    int64_t i = 0;
    while (i < count && t->at < t->stretches) {
        const int64_t start = t->starts[t->at], stop = t->stops[t->at];
        const uint64_t header = t->headers == NULL ? 0 : (uint64_t)t->headers[t->at];
        rmq_tiles tiles = {0};
        int64_t end = t->end;
        int goes_on = 1;
        for (; i < count; i++) {
            const uint8_t *unit = units + i * unit_size;
            const int64_t begin = rmq_i64(unit), size = rmq_i32(unit + 8);
            const rmq_unit_kind kind = rmq_kind_of_unit(unit, is_batch);
            if (kind == RMQ_UNIT_IS_PRE_BLANK || kind == RMQ_UNIT_IS_LOST) continue;
            goes_on = kind == RMQ_UNIT_IS_MESSAGE && begin >= end;
            if (!goes_on || begin >= stop) break;
            end = begin + size;
            if (begin < start) continue;
            if (tiles.count == 0) tiles.first = i;
            tiles.last = i;
            tiles.count += 1;
            tiles.bytes += size;
            tiles.begins += rmq_fingerprint(begin);
            tiles.ends += rmq_fingerprint((int64_t)((uint64_t)end + header));
        }
        t->end = end;
        rmq_add_tiles(t, &tiles, units);
        if (!goes_on) return 0;
        if (i < count) t->at += 1;
    }
    t->number += count;
    return t->at < t->stretches;
}

#endif
