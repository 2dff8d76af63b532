/* The cheap part of a selection: is a unit wanted, as far as its fixed fields and its topic tell? */
#ifndef RMQ_SELECT_H
#define RMQ_SELECT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

typedef struct {
    int64_t least, most; /* both are in; none is when least > most */
} rmq_bounds;

static inline int rmq_within(rmq_bounds b, int64_t v) { return b.least <= v && v <= b.most; }

/* A queue that the filter has been told of. */
typedef struct {
    uint8_t *topic;
    int32_t topic_length, queue_id;
    uint64_t hash;
    rmq_bounds queue_offset; /* what is wanted of it */
} rmq_judged;

enum {
    RMQ_MOST_JUDGED = 1 << 16,          /* so many at once; a broker has fewer queues. Then it forgets them all. */
    RMQ_JUDGED_SLOTS = 2 * RMQ_MOST_JUDGED,
};

typedef struct {
    rmq_bounds store_timestamp; /* milliseconds */
    rmq_bounds physical_offset;
    int any_queue; /* topic, queueId and queueOffset may be anything */
    int32_t count, last;
    rmq_judged *judged;
    int32_t *slots; /* open addressing: 1 + the place in `judged`; 0: empty */
} rmq_filter;

/* What is said of a unit. */
enum { RMQ_REFUSED, RMQ_WANTED, RMQ_UNKNOWN };

static void rmq_forget_judged(rmq_filter *f) {
    for (int32_t i = 0; i < f->count; i++) free(f->judged[i].topic);
    if (f->slots != NULL) memset(f->slots, 0, RMQ_JUDGED_SLOTS * sizeof *f->slots);
    f->count = f->last = 0;
}

static void rmq_free_filter(rmq_filter *f) {
    rmq_forget_judged(f);
    free(f->judged);
    free(f->slots);
}

static inline int rmq_is_judged(const rmq_judged *j, const uint8_t *topic, int32_t n, int32_t queue_id) {
    return j->queue_id == queue_id && j->topic_length == n && memcmp(j->topic, topic, (size_t)n) == 0;
}

/* What is known of a queue, or NULL. */
static inline const rmq_judged *rmq_judged_of(rmq_filter *f, const uint8_t *topic, int32_t n, int32_t queue_id) {
    if (f->count == 0) return NULL;
    if (rmq_is_judged(&f->judged[f->last], topic, n, queue_id)) return &f->judged[f->last];
    const uint64_t hash = rmq_hash_queue(topic, n, queue_id);
    for (uint64_t slot = hash % RMQ_JUDGED_SLOTS; f->slots[slot] != 0; slot = (slot + 1) % RMQ_JUDGED_SLOTS) {
        const int32_t i = f->slots[slot] - 1;
        if (f->judged[i].hash == hash && rmq_is_judged(&f->judged[i], topic, n, queue_id)) {
            f->last = i;
            return &f->judged[i];
        }
    }
    return NULL;
}

/* Remember what is wanted of a queue that is not known yet. 0, or -1 when there is no memory. */
static int rmq_judge(rmq_filter *f, const uint8_t *topic, int32_t n, int32_t queue_id, rmq_bounds queue_offset) {
    if (f->judged == NULL) f->judged = malloc(RMQ_MOST_JUDGED * sizeof *f->judged);
    if (f->slots == NULL) f->slots = calloc(RMQ_JUDGED_SLOTS, sizeof *f->slots);
    if (f->judged == NULL || f->slots == NULL) return -1;
    if (f->count == RMQ_MOST_JUDGED) rmq_forget_judged(f);
    uint8_t *copy = malloc((size_t)n + 1);
    if (copy == NULL) return -1;
    memcpy(copy, topic, (size_t)n);
    const uint64_t hash = rmq_hash_queue(topic, n, queue_id);
    uint64_t slot = hash % RMQ_JUDGED_SLOTS;
    while (f->slots[slot] != 0) slot = (slot + 1) % RMQ_JUDGED_SLOTS;
    f->judged[f->count] = (rmq_judged){copy, n, queue_id, hash, queue_offset};
    f->slots[slot] = ++f->count;
    return 0;
}

static inline int rmq_wanted(rmq_filter *f, const rmq_unit *u, int64_t position) {
    if (!rmq_within(f->store_timestamp, rmq_i64(u->store_timestamp))) return RMQ_REFUSED;
    if (!rmq_within(f->physical_offset, position)) return RMQ_REFUSED;
    if (f->any_queue) return RMQ_WANTED;
    const rmq_judged *j = rmq_judged_of(f, u->topic, u->topic_length, rmq_i32(u->start + RMQ_AT_QUEUE_ID));
    if (j == NULL) return RMQ_UNKNOWN;
    return rmq_within(j->queue_offset, rmq_i64(u->start + RMQ_AT_QUEUE_OFFSET)) ? RMQ_WANTED : RMQ_REFUSED;
}

/* rmq_scan, but only wanted units are listed, and only their CRC is looked at. RMQ_ASK: `asked` is at *position, and its
 * queue has to be judged first. */
static int rmq_select(rmq_filter *f, const uint8_t *window, int64_t size, int64_t base, int64_t *position, int64_t stop,
                      int64_t segment_end, int verify_crc, int64_t *positions, int64_t capacity, int64_t *count,
                      rmq_unit *asked, rmq_finding *why) {
    int64_t at = *position, n = *count;
    int status = RMQ_FULL;
    while (n < capacity) {
        rmq_unit u;
        status = rmq_next(window, size, base, at, stop, segment_end, 0, &u, why);
        if (status != RMQ_OK) break;
        __builtin_prefetch(u.start + u.total); /* the next unit's head */
        const int verdict = rmq_wanted(f, &u, at);
        if (verdict == RMQ_UNKNOWN) {
            *asked = u;
            status = RMQ_ASK;
            break;
        }
        if (verdict == RMQ_WANTED) {
            if (verify_crc && (status = rmq_check_crc(&u, why)) != RMQ_OK) break;
            positions[n++] = at;
        }
        at += u.total;
        status = RMQ_FULL;
    }
    *position = at;
    *count = n;
    return status;
}

/* Where an accelerator says that units are, and their bytes: places[i] in the window, lengths[i] of them. `sizes` and
 * `queue_offsets` are what it says of the units, or NULL. */
typedef struct {
    const int64_t *positions, *places, *lengths;
    const int32_t *sizes;
    const int64_t *queue_offsets;
    int64_t count;
} rmq_claims;

/* Of the claims from *taken on those whose units are wanted: wanted[0 .. *count). RMQ_LIMIT: all were looked at;
 * RMQ_CONTRADICTED: the log has another unit where claim *taken should be; RMQ_MORE, RMQ_ASK: as of rmq_select; else
 * there is no unit at all, and the status says why. */
static int rmq_pick(rmq_filter *f, const uint8_t *window, int64_t size, const rmq_claims *claims, int64_t *taken,
                    int64_t segment_end, int verify_crc, int64_t *wanted, int64_t *count, rmq_unit *asked,
                    rmq_finding *why) {
    for (; *taken < claims->count; *taken += 1) {
        const int64_t i = *taken, at = claims->positions[i], place = claims->places[i], length = claims->lengths[i];
        rmq_unit u;
        if (at < 0 || at >= segment_end || place < 0 || place > size || length < 0 || length > size - place)
            return rmq_fail(why, RMQ_CONTRADICTED, segment_end, at);
        const int status = rmq_unit_at(window + place, length, at, segment_end - at, 0, &u, why);
        if (status != RMQ_OK) return status;
        const int64_t queue_offset = rmq_i64(u.start + RMQ_AT_QUEUE_OFFSET);
        if (claims->sizes != NULL && claims->sizes[i] != u.total)
            return rmq_fail(why, RMQ_CONTRADICTED, claims->sizes[i], u.total);
        if (claims->queue_offsets != NULL && claims->queue_offsets[i] != queue_offset)
            return rmq_fail(why, RMQ_CONTRADICTED, claims->queue_offsets[i], queue_offset);
        const rmq_judged *j = NULL;
        if (!f->any_queue) {
            j = rmq_judged_of(f, u.topic, u.topic_length, rmq_i32(u.start + RMQ_AT_QUEUE_ID));
            if (j == NULL) {
                *asked = u;
                return RMQ_ASK;
            }
            /* Only wanted queues make claims: another queue here is a contradiction, not a message to pass over. */
            if (claims->queue_offsets != NULL && !rmq_within(j->queue_offset, queue_offset))
                return rmq_fail(why, RMQ_CONTRADICTED, claims->queue_offsets[i], queue_offset);
        }
        if (rmq_wanted(f, &u, at) == RMQ_WANTED) {
            if (verify_crc && rmq_check_crc(&u, why) != RMQ_OK) return RMQ_BAD_BODY_CRC;
            wanted[(*count)++] = i;
        }
    }
    return RMQ_LIMIT;
}

#endif
