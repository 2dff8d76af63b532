/* The data that org.apache.rocketmq.store derives from an appended unit: its offset in the queue (CommitLog, before
 * appending), its ConsumeQueue unit (CommitLogDispatcherBuildConsumeQueue) and its index entries
 * (CommitLogDispatcherBuildIndex).
 *
 *     sysFlag's type     queueOffset             ConsumeQueue   index
 *     NOT, COMMIT        the queue's next one    yes            yes
 *     PREPARED           0                       no             yes
 *     ROLLBACK           0                       no             no
 *
 * A ConsumeQueue unit is: i64 physicalOffset, i32 size, i64 tagsCode. Each light queue of a message gets the same unit.
 * That of a BatchCQ goes on with: i64 storeTimestamp, i64 queueOffset of the first message, i16 messages, i32 -1, i32 0
 * (queue.BatchConsumeQueue.putBatchMessagePositionInfo). */
#ifndef RMQ_DISPATCH_H
#define RMQ_DISPATCH_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compressed.h"
#include "crc32.h"
#include "java_hash.h"
#include "light_queues.h"
#include "memory.h"
#include "properties.h"
#include "queue_units.h"
#include "queues.h"
#include "schedule.h"
#include "unit.h"
#include "walk.h"

static const int64_t rmq_max_queue_offset = INT64_MAX / RMQ_QUEUE_UNIT_SIZE; /* a ConsumeQueue's bytes are counted too */

/* The state of a queue. */
typedef struct {
    int64_t next;        /* queueOffset of the next message that is placed */
    uint32_t key_prefix; /* Java's hash of the topic and '#', with which an index key begins */
    int32_t is_schedule, is_batch;
    int64_t pending;     /* units since the last rmq_group */
    int64_t at;          /* in rmq_group: where the queue's next unit goes */
} rmq_queue;

typedef struct {
    int64_t queue_offset, position, tags_code;
    int32_t queue, size;
} rmq_queue_unit;

/* What the unit of a BatchCQ has beside that. No message has it where `messages` is not above 0. */
typedef struct {
    int64_t timestamp, base;
    int32_t messages;
} rmq_batch_unit;

typedef struct {
    int64_t position, timestamp;
    int64_t hash;
} rmq_index_entry;

/* Units of one queue, from `offset` on: without a gap, except in a BatchCQ. `size`: bytes of each. */
typedef struct {
    int64_t queue, offset, count, size;
} rmq_run;

typedef struct {
    const uint8_t *name;
    int64_t size;
} rmq_topic;

typedef struct {
    int index_tags;   /* whether tags are index keys too, as for brokers of 5.5.0 */
    int light_queues; /* whether light queues get their units */
    rmq_queues queues;
    rmq_list states;  /* of rmq_queue, by the queue's number */
    rmq_list units;   /* of rmq_queue_unit, in log order */
    rmq_list entries; /* of rmq_index_entry, in the order a broker puts them */
    rmq_list touched; /* of int32_t: the queues that have pending units */
    rmq_list batches; /* of rmq_batch_unit: for each unit of a BatchCQ */
    rmq_list odd_bodies; /* of int64_t: the positions of units whose body is not compressed as sysFlag says */
    rmq_list batch_topics; /* of rmq_topic: those whose queues are BatchCQs; few */
    int64_t last_position, last_timestamp, inner_batches;
    int64_t least_timestamp, most_timestamp; /* of all units; the most is below the least where there is none */
    uint64_t fall;   /* the most by which a unit is older than one before it */
    int64_t bytes;    /* of all units */
    rmq_splitter splitter;
} rmq_dispatcher;

static void rmq_free_dispatcher(rmq_dispatcher *d) {
    rmq_free_queues(&d->queues);
    free(d->states.data);
    free(d->units.data);
    free(d->entries.data);
    free(d->touched.data);
    free(d->batches.data);
    free(d->odd_bodies.data);
    free(d->batch_topics.data);
    free(d);
}

/* ---- queues */

static inline rmq_queue *rmq_queue_at(rmq_dispatcher *d, int32_t number) {
    return (rmq_queue *)d->states.data + number;
}

/* Add a topic whose queues are BatchCQs, before the first unit; the name stays the caller's. */
static inline int rmq_add_batch_topic(rmq_dispatcher *d, const uint8_t *name, int64_t size) {
    RMQ_TRY(rmq_list_reserve(&d->batch_topics, 1, sizeof(rmq_topic)));
    ((rmq_topic *)d->batch_topics.data)[d->batch_topics.size++] = (rmq_topic){name, size};
    return 0;
}

static inline int rmq_has_batches(const rmq_dispatcher *d, const uint8_t *topic, int32_t size) {
    const rmq_topic *const topics = d->batch_topics.data;
    for (int64_t i = 0; i < d->batch_topics.size; i++)
        if (topics[i].size == size && memcmp(topics[i].name, topic, (size_t)size) == 0) return 1;
    return 0;
}

/* The number of a queue, which gets one if it has none yet; -1 when there is no memory. */
static inline int32_t rmq_know_queue(rmq_dispatcher *d, const uint8_t *topic, int32_t size, int32_t id) {
    const int32_t found = rmq_find_queue(&d->queues, topic, size, id);
    if (__builtin_expect(found >= 0, 1)) return found;
    RMQ_TRY(rmq_list_reserve(&d->states, 1, sizeof(rmq_queue)));
    const int32_t number = rmq_add_queue(&d->queues, topic, size, id);
    if (number < 0) return -1;
    *rmq_queue_at(d, number) = (rmq_queue){
        .key_prefix = 31 * rmq_java_hash(0, topic, size) + '#',
        .is_schedule = rmq_is_schedule_topic(topic, size),
        .is_batch = rmq_has_batches(d, topic, size),
    };
    d->states.size += 1;
    return number;
}

/* ---- collecting */

static inline int rmq_is_queued(const rmq_unit *u) {
    const int32_t type = u->sys_flag & RMQ_SYSFLAG_TRANSACTION_TYPE;
    return type != RMQ_SYSFLAG_TRANSACTION_PREPARED && type != RMQ_SYSFLAG_TRANSACTION_ROLLBACK;
}

/* tagsCode of a delayed message is the time at which it is due; 0 when it has none. */
__attribute__((noinline)) static int64_t rmq_due(const rmq_splitter *s, const uint8_t *p, int32_t n,
                                                 int64_t timestamp) {
    int32_t level = 0;
    for (int32_t i = 0; i < n; i++) {
        const rmq_property *found = &s->found[i];
        if (found->separator - found->name == 5 && rmq_is(p + found->name, "DELAY", 5) &&
            !rmq_parse_int(p + found->separator + 1, found->end - found->separator - 1, &level))
            return 0;
    }
    return level > 0 ? (int64_t)((uint64_t)timestamp + (uint64_t)rmq_delay_of(level)) : 0;
}

/* Long.parseLong, except for digits that are not ASCII, and for numbers below 0. Returns 0 when the text is no such number. */
static inline int rmq_parse_offset(const uint8_t *p, int64_t n, int64_t *number) {
    const int64_t sign = n > 0 && *p == '+';
    int64_t value = 0;
    if (n == sign) return 0;
    for (int64_t i = sign; i < n; i++) {
        const int64_t digit = (int64_t)p[i] - '0';
        if (digit < 0 || digit > 9 || value > (INT64_MAX - digit) / 10) return 0;
        value = 10 * value + digit;
    }
    *number = value;
    return 1;
}

/* The messages of a unit in a BatchCQ, as properties INNER_BASE and INNER_NUM say; where one is missing, the unit is one
 * message (CommitLog.setBatchSizeIfNeeded). A broker takes no message whose numbers it cannot read. */
__attribute__((noinline)) static rmq_batch_unit rmq_batch_of(const rmq_splitter *s, const uint8_t *p, int32_t n,
                                                             int64_t timestamp, int64_t queue_offset) {
    const rmq_batch_unit none = {timestamp, 0, 0}, single = {timestamp, queue_offset, 1};
    const rmq_property *base = NULL, *count = NULL;
    for (int32_t i = 0; i < n; i++) {
        const rmq_property *found = &s->found[i];
        const int32_t size = found->separator - found->name;
        if (size == 10 && rmq_is(p + found->name, "INNER_BASE", 10)) base = found;
        if (size == 9 && rmq_is(p + found->name, "INNER_NUM", 9)) count = found;
    }
    if (base == NULL || count == NULL) return queue_offset < 0 ? none : single;
    rmq_batch_unit unit = none;
    if (!rmq_parse_offset(p + base->separator + 1, base->end - base->separator - 1, &unit.base)) return none;
    if (!rmq_parse_int(p + count->separator + 1, count->end - count->separator - 1, &unit.messages)) return none;
    return unit.messages < 0 || unit.messages > INT16_MAX ? none : unit;
}

static inline int rmq_put_entry(rmq_dispatcher *d, uint32_t prefix, const uint8_t *key, int64_t size, int64_t position,
                                int64_t timestamp) {
    RMQ_TRY(rmq_list_reserve(&d->entries, 1, sizeof(rmq_index_entry)));
    const int32_t hash = rmq_index_hash(rmq_java_hash(prefix, key, size));
    ((rmq_index_entry *)d->entries.data)[d->entries.size++] = (rmq_index_entry){position, timestamp, hash};
    return 0;
}

/* KEYS: words with single spaces between them, of which empty ones do not count. */
static inline int rmq_put_keys(rmq_dispatcher *d, uint32_t prefix, const uint8_t *p, int64_t size, int64_t position,
                               int64_t timestamp) {
    const uint8_t *const end = p + size;
    while (p < end) {
        const uint8_t *space = memchr(p, ' ', (size_t)(end - p));
        const uint8_t *const stop = space == NULL ? end : space;
        if (stop > p) RMQ_TRY(rmq_put_entry(d, prefix, p, stop - p, position, timestamp));
        p = stop + 1;
    }
    return 0;
}

__attribute__((noinline)) static int rmq_put_odd_body(rmq_dispatcher *d, int64_t position) {
    RMQ_TRY(rmq_list_reserve(&d->odd_bodies, 1, sizeof(int64_t)));
    ((int64_t *)d->odd_bodies.data)[d->odd_bodies.size++] = position;
    return 0;
}

/* Collect a unit of a queue; 0, or -1 when there is no memory. */
static inline int rmq_put_unit(rmq_dispatcher *d, rmq_queue_unit unit) {
    RMQ_TRY(rmq_list_reserve(&d->units, 1, sizeof(rmq_queue_unit)));
    if (rmq_queue_at(d, unit.queue)->pending++ == 0) {
        RMQ_TRY(rmq_list_reserve(&d->touched, 1, sizeof(int32_t)));
        ((int32_t *)d->touched.data)[d->touched.size++] = unit.queue;
    }
    ((rmq_queue_unit *)d->units.data)[d->units.size++] = unit;
    return 0;
}

/* Collect the units of a message's light queues, given that of its own queue; 0, or -1 when there is no memory. */
__attribute__((noinline)) static int rmq_put_lights(rmq_dispatcher *d, rmq_light light, rmq_queue_unit unit) {
    while (rmq_next_light(&light)) {
        unit.queue = rmq_know_queue(d, light.name, (int32_t)light.name_size, 0);
        unit.queue_offset = light.offset;
        if (unit.queue < 0) return -1;
        if (rmq_queue_at(d, unit.queue)->is_batch) continue; /* no light queue is, whatever topics.json says */
        RMQ_TRY(rmq_put_unit(d, unit));
    }
    return 0;
}

static inline rmq_text rmq_value_of(const rmq_splitter *s, const uint8_t *p, int32_t which) {
    const rmq_property *const found = &s->found[which];
    return (rmq_text){p + found->separator + 1, found->end - found->separator - 1};
}

/* Collect the data derived from a unit; 0, or -1 when there is no memory. */
static inline int rmq_collect(rmq_dispatcher *d, const rmq_unit *u, int32_t number, int64_t queue_offset,
                              int64_t position, const uint8_t *readable_end, rmq_machine machine) {
    const int64_t timestamp = rmq_i64(u->store_timestamp);
    const uint8_t *const p = u->properties;
    rmq_splitter *const s = &d->splitter;
    const rmq_known_names *names, *known;
    d->last_position = position;
    d->last_timestamp = timestamp;
    if (timestamp < d->least_timestamp) d->least_timestamp = timestamp;
    if (timestamp >= d->most_timestamp) d->most_timestamp = timestamp;
    else if ((uint64_t)d->most_timestamp - (uint64_t)timestamp > d->fall)
        d->fall = (uint64_t)d->most_timestamp - (uint64_t)timestamp;
    d->bytes += u->total;
    if (__builtin_expect(!rmq_begins_as_said(u), 0)) RMQ_TRY(rmq_put_odd_body(d, position));
    d->inner_batches += (u->sys_flag & RMQ_SYSFLAG_INNER_BATCH) != 0 && !rmq_queue_at(d, number)->is_batch;
    if ((u->sys_flag & RMQ_SYSFLAG_TRANSACTION_TYPE) == RMQ_SYSFLAG_TRANSACTION_ROLLBACK) return 0;
    const int32_t n = rmq_split(s, p, u->properties_length, readable_end, &names, &known, machine);
    rmq_queue *q = rmq_queue_at(d, number);
    if (rmq_is_queued(u)) {
        if (__builtin_expect(q->is_batch, 0)) {
            RMQ_TRY(rmq_list_reserve(&d->batches, 1, sizeof(rmq_batch_unit)));
            ((rmq_batch_unit *)d->batches.data)[d->batches.size++] = rmq_batch_of(s, p, n, timestamp, queue_offset);
        }
        int64_t tags_code = q->is_schedule ? rmq_due(s, p, n, timestamp) : 0;
        if (tags_code == 0 && names->tags >= 0) {
            const rmq_property *tags = &s->found[names->tags];
            tags_code = (int32_t)rmq_java_hash(0, p + tags->separator + 1, tags->end - tags->separator - 1);
        }
        const rmq_queue_unit unit = {queue_offset, position, tags_code, number, u->total};
        RMQ_TRY(rmq_put_unit(d, unit));
        if (__builtin_expect(names->light_queues >= 0 && names->light_offsets >= 0, 0) && d->light_queues) {
            const rmq_text light = rmq_value_of(s, p, names->light_queues), offsets = rmq_value_of(s, p, names->light_offsets);
            RMQ_TRY(rmq_put_lights(d, rmq_lights_of(u, light, offsets), unit));
            q = rmq_queue_at(d, number); /* the list may have moved */
        }
    }
    if (names->uniq_key >= 0) {
        const rmq_property *key = &s->found[names->uniq_key];
        RMQ_TRY(rmq_put_entry(d, q->key_prefix, p + key->separator + 1, key->end - key->separator - 1, position,
                              timestamp));
    }
    if (names->keys >= 0) {
        const rmq_property *keys = &s->found[names->keys];
        RMQ_TRY(rmq_put_keys(d, q->key_prefix, p + keys->separator + 1, keys->end - keys->separator - 1, position,
                             timestamp));
    }
    if (d->index_tags && names->tags >= 0) { /* topic#T#tags */
        const rmq_property *tags = &s->found[names->tags];
        const uint32_t prefix = 31 * (31 * q->key_prefix + 'T') + '#';
        RMQ_TRY(rmq_put_entry(d, prefix, p + tags->separator + 1, tags->end - tags->separator - 1, position, timestamp));
    }
    return 0;
}

/* ---- giving out positions */

/* A checksum of the whole unit (__CRC32#, enabledAppendPropCRC) is the last property, with ten digits, the lowest first:
 * a unit's checksum is recomputed, as the bytes that it covers have changed. */
static inline void rmq_renew_property_crc(uint8_t *p, const rmq_unit *u) {
    enum { SIZE = 20, DIGITS = 10 };
    uint8_t *const at = p + u->total - SIZE;
    if (u->properties_length < SIZE || memcmp(at, "__CRC32#\1", 9) != 0 || at[SIZE - 1] != '\2') return;
    uint32_t crc = rmq_crc32(0, p, (size_t)(u->total - SIZE)) & 0x7FFFFFFF;
    for (int i = 0; i < DIGITS; i++, crc /= 10) at[9 + i] = (uint8_t)('0' + crc % 10);
}

/* Give the staged units of a walk their positions, from the walk's own on, and their queue offsets, unless they keep
 * those that they have; units whose storeTimestamp is 0 get `store_timestamp`. The walk's window is written to. The
 * walk stops where a unit does not fit into the segment (RMQ_FULL), where all units are placed (RMQ_LIMIT), or where
 * there is no unit. Returns 0, or -1 when there is no memory. */
static inline int rmq_place_on(rmq_dispatcher *d, rmq_walk *w, int64_t store_timestamp, int keep, rmq_machine machine) {
    for (;; w->count += 1) {
        const int64_t in_window = w->position - w->base, left_in_segment = w->segment_end - w->position;
        uint8_t *const p = (uint8_t *)w->window + in_window;
        const int64_t left = w->size - in_window;
        rmq_unit u;
        w->status = RMQ_LIMIT;
        if (left == 0) return 0;
        /* A staged unit has no physical offset yet, and any value there is ignored. */
        const int64_t stored = left < RMQ_AT_SYSFLAG ? 0 : rmq_i64(p + RMQ_AT_PHYSICAL_OFFSET);
        w->status = rmq_unit_at(p, left, stored, INT64_MAX, w->verify_crc, &u, &w->why);
        if (w->status != RMQ_OK) return 0;
        if (u.total + RMQ_BLANK_SIZE > left_in_segment) {
            w->status = rmq_fail(&w->why, RMQ_FULL, u.total + RMQ_BLANK_SIZE, left_in_segment);
            return 0;
        }
        rmq_prefetch_next(&u);
        const int32_t number = rmq_know_queue(d, u.topic, u.topic_length, rmq_i32(p + RMQ_AT_QUEUE_ID));
        if (number < 0) return -1;
        int64_t *const next = &rmq_queue_at(d, number)->next;
        const int64_t kept = rmq_i64(p + RMQ_AT_QUEUE_OFFSET);
        const int64_t queue_offset = keep ? kept : rmq_is_queued(&u) ? *next : 0;
        *next += rmq_is_queued(&u);
        rmq_put_i64(p + RMQ_AT_QUEUE_OFFSET, queue_offset);
        rmq_put_i64(p + RMQ_AT_PHYSICAL_OFFSET, w->position);
        if (rmq_i64(u.store_timestamp) == 0) rmq_put_i64(p + (u.store_timestamp - p), store_timestamp);
        if (keep) rmq_renew_property_crc(p, &u);
        RMQ_TRY(rmq_collect(d, &u, number, queue_offset, w->position, w->window + w->size, machine));
        w->position += u.total;
    }
}

RMQ_FOR_MACHINES(int, rmq_place, (rmq_dispatcher *d, rmq_walk *w, int64_t store_timestamp, int keep), d, w, store_timestamp,
                 keep)

/* ---- reading a log as it stands */

/* Walk and collect, at most `most` units. Answers 0, or -1 when there is no memory. */
static inline int rmq_dispatch_on(rmq_dispatcher *d, rmq_walk *w, int64_t most, rmq_machine machine) {
    int64_t at = w->position, n = 0;
    int status = RMQ_FULL;
    while (n < most) {
        rmq_unit u;
        status = rmq_next(w, &at, w->verify_crc, &u, &w->why);
        if (status != RMQ_OK) break;
        rmq_prefetch_next(&u);
        const int32_t number = rmq_know_queue(d, u.topic, u.topic_length, rmq_i32(u.start + RMQ_AT_QUEUE_ID));
        if (number < 0) return -1;
        const int64_t queue_offset = rmq_i64(u.start + RMQ_AT_QUEUE_OFFSET);
        RMQ_TRY(rmq_collect(d, &u, number, queue_offset, at, w->window + w->size, machine));
        at += u.total;
        n += 1;
        status = RMQ_FULL;
    }
    w->position = at;
    w->count = n;
    w->status = status;
    return 0;
}

RMQ_FOR_MACHINES(int, rmq_dispatch, (rmq_dispatcher *d, rmq_walk *w, int64_t most), d, w, most)

/* ---- handing over */

/* Bytes of all collected ConsumeQueue units. */
static inline int64_t rmq_units_size(const rmq_dispatcher *d) {
    return RMQ_QUEUE_UNIT_SIZE * d->units.size + (RMQ_BATCH_QUEUE_UNIT_SIZE - RMQ_QUEUE_UNIT_SIZE) * d->batches.size;
}

static inline void rmq_put_batch_unit(uint8_t *p, const rmq_batch_unit *unit) {
    rmq_put_i64(p + RMQ_AT_BATCH_TIME, unit->timestamp);
    rmq_put_i64(p + RMQ_AT_BATCH_BASE, unit->base);
    p[RMQ_AT_BATCH_COUNT] = (uint8_t)(unit->messages >> 8);
    p[RMQ_AT_BATCH_COUNT + 1] = (uint8_t)unit->messages;
    rmq_put_i32(p + RMQ_AT_BATCH_COUNT + 2, -1); /* a relic */
    rmq_put_i32(p + RMQ_AT_BATCH_COUNT + 6, 0);
}

/* The collected ConsumeQueue units as they are on disk, queue by queue: rmq_units_size() bytes at `out`. The runs of each
 * queue go to `runs`, units.size elements. Returns the number of runs, or -1 when there is no memory. */
static int64_t rmq_group(rmq_dispatcher *d, uint8_t *out, rmq_run *runs) {
    const rmq_queue_unit *const units = d->units.data;
    const rmq_batch_unit *batch = d->batches.data;
    const int32_t *const touched = d->touched.data;
    const int64_t n = d->units.size;
    if (n == 0) return 0;
    int64_t *const offsets = malloc((size_t)n * sizeof *offsets);
    if (offsets == NULL) return -1;
    for (int64_t i = 0, before = 0, at = 0; i < d->touched.size; i++) { /* `pending` becomes where the queue's next unit goes */
        rmq_queue *q = rmq_queue_at(d, touched[i]);
        const int64_t pending = q->pending;
        q->pending = before;
        q->at = at;
        before += pending;
        at += pending * (q->is_batch ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE);
    }
    for (int64_t i = 0; i < n; i++) {
        rmq_queue *const q = rmq_queue_at(d, units[i].queue);
        uint8_t *const p = out + q->at;
        rmq_put_i64(p, units[i].position);
        rmq_put_i32(p + 8, units[i].size);
        rmq_put_i64(p + 12, units[i].tags_code);
        if (q->is_batch) rmq_put_batch_unit(p, batch++);
        q->at += q->is_batch ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE;
        offsets[q->pending++] = units[i].queue_offset;
    }
    int64_t count = 0;
    for (int64_t i = 0, k = 0; i < d->touched.size; i++) {
        rmq_queue *q = rmq_queue_at(d, touched[i]);
        const int64_t end = q->pending, size = q->is_batch ? RMQ_BATCH_QUEUE_UNIT_SIZE : RMQ_QUEUE_UNIT_SIZE;
        for (int64_t first = 1; k < end; k++, first = 0) {
            const int goes_on = q->is_batch || (offsets[k - 1 + first] != INT64_MAX && offsets[k] == offsets[k - 1 + first] + 1);
            if (first || !goes_on) runs[count++] = (rmq_run){touched[i], offsets[k], 0, size};
            runs[count - 1].count += 1;
        }
        q->pending = 0;
    }
    free(offsets);
    return count;
}

/* Begin anew, keeping the known queues. */
static void rmq_forget(rmq_dispatcher *d) {
    d->units.size = d->entries.size = d->touched.size = d->batches.size = d->odd_bodies.size = 0;
    d->last_position = d->last_timestamp = d->inner_batches = d->bytes = 0;
    d->least_timestamp = INT64_MAX;
    d->most_timestamp = INT64_MIN;
    d->fall = 0;
}

#endif
