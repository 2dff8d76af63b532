/* What org.apache.rocketmq.store makes of a unit once it is appended: its place in the queue (CommitLog, which is asked
 * before), its ConsumeQueue unit (CommitLogDispatcherBuildConsumeQueue) and its index entries (CommitLogDispatcherBuildIndex).
 *
 *     sysFlag's type     queueOffset             ConsumeQueue   index
 *     NOT, COMMIT        the queue's next one    yes            yes
 *     PREPARED           0                       no             yes
 *     ROLLBACK           0                       no             no
 *
 * A ConsumeQueue unit is: i64 physicalOffset, i32 size, i64 tagsCode. */
#ifndef RMQ_DISPATCH_H
#define RMQ_DISPATCH_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "java_hash.h"
#include "memory.h"
#include "properties.h"
#include "schedule.h"
#include "unit.h"

enum { RMQ_QUEUE_UNIT_SIZE = 20 };
static const int64_t rmq_max_queue_offset = INT64_MAX / RMQ_QUEUE_UNIT_SIZE; /* a ConsumeQueue's bytes are counted too */

/* An array that grows. */
typedef struct {
    void *data;
    int64_t size, capacity; /* in elements */
} rmq_list;

/* Room for `more` elements of `width` bytes behind those there are; 0, or -1 when there is no memory. */
static inline int rmq_list_reserve(rmq_list *list, int64_t more, size_t width) {
    if (list->size + more <= list->capacity) return 0;
    const int64_t capacity = 2 * list->capacity + more + 64;
    void *data = realloc(list->data, (size_t)capacity * width);
    if (data == NULL) return -1;
    list->data = data;
    list->capacity = capacity;
    return 0;
}

typedef struct {
    int64_t next;        /* queueOffset of the next message */
    int64_t topic;       /* where in `topics` */
    uint64_t hash;       /* of topic and id */
    int32_t topic_size, id;
    uint32_t key_prefix; /* Java's hash of the topic and '#', with which an index key begins */
    int32_t is_schedule;
    int64_t pending;     /* units since the last rmq_group */
} rmq_queue;

typedef struct {
    int64_t queue_offset, position, tags_code;
    int32_t queue, size;
} rmq_queue_unit;

typedef struct {
    int64_t position, timestamp;
    int64_t hash;
} rmq_index_entry;

/* Units of one queue, without a gap, from `offset` on. */
typedef struct {
    int64_t queue, offset, count;
} rmq_run;

typedef struct {
    int index_tags;   /* whether tags are index keys too, as for brokers of 5.5.0 */
    rmq_list queues;  /* of rmq_queue */
    rmq_list topics;  /* their names, one behind the other */
    int32_t *table;   /* open addressing over `queues`: 1 + number, 0 is free */
    int64_t table_size; /* a power of two, at least twice as many as there are queues */
    rmq_list units;   /* of rmq_queue_unit, in log order */
    rmq_list entries; /* of rmq_index_entry, in the order a broker puts them */
    rmq_list touched; /* of int32_t: the queues that have pending units */
    int64_t last_timestamp, inner_batches;
    rmq_splitter splitter;
} rmq_dispatcher;

static void rmq_free_dispatcher(rmq_dispatcher *d) {
    free(d->queues.data);
    free(d->topics.data);
    free(d->table);
    free(d->units.data);
    free(d->entries.data);
    free(d->touched.data);
    free(d);
}

/* ---- queues */

static int rmq_grow_table(rmq_dispatcher *d) {
    const int64_t size = d->table_size == 0 ? 64 : 2 * d->table_size;
    int32_t *table = calloc((size_t)size, sizeof *table);
    if (table == NULL) return -1;
    const rmq_queue *queues = d->queues.data;
    for (int64_t i = 0; i < d->queues.size; i++) {
        uint64_t at = queues[i].hash & (uint64_t)(size - 1);
        while (table[at] != 0) at = (at + 1) & (uint64_t)(size - 1);
        table[at] = (int32_t)(i + 1);
    }
    free(d->table);
    d->table = table;
    d->table_size = size;
    return 0;
}

__attribute__((noinline)) static int rmq_add_queue(rmq_dispatcher *d, const uint8_t *topic, int32_t size, int32_t id,
                                                   uint64_t hash) {
    if (d->queues.size >= INT32_MAX / 2) return -1;
    RMQ_TRY(rmq_list_reserve(&d->queues, 1, sizeof(rmq_queue)));
    RMQ_TRY(rmq_list_reserve(&d->topics, size + 1, 1)); /* so that even the name of nothing has an address */
    memcpy((uint8_t *)d->topics.data + d->topics.size, topic, (size_t)size);
    ((rmq_queue *)d->queues.data)[d->queues.size] = (rmq_queue){
        .topic = d->topics.size,
        .hash = hash,
        .topic_size = size,
        .id = id,
        .key_prefix = 31 * rmq_java_hash(0, topic, size) + '#',
        .is_schedule = rmq_is_schedule_topic(topic, size),
    };
    d->queues.size += 1;
    d->topics.size += size;
    if (2 * d->queues.size > d->table_size) return rmq_grow_table(d); /* which enters the new one as well */
    uint64_t at = hash & (uint64_t)(d->table_size - 1);
    while (d->table[at] != 0) at = (at + 1) & (uint64_t)(d->table_size - 1);
    d->table[at] = (int32_t)d->queues.size;
    return 0;
}

/* The number of a queue, which is given one if it has none yet; -1 when there is no memory. */
static inline int32_t rmq_find_queue(rmq_dispatcher *d, const uint8_t *topic, int32_t size, int32_t id) {
    const uint64_t hash = rmq_hash_queue(topic, size, id);
    const rmq_queue *queues = d->queues.data;
    if (d->table_size > 0) {
        uint64_t at = hash & (uint64_t)(d->table_size - 1);
        for (int32_t number; (number = d->table[at]) != 0; at = (at + 1) & (uint64_t)(d->table_size - 1)) {
            const rmq_queue *q = &queues[number - 1];
            if (q->hash == hash && q->id == id && q->topic_size == size &&
                memcmp((const uint8_t *)d->topics.data + q->topic, topic, (size_t)size) == 0)
                return number - 1;
        }
    }
    return rmq_add_queue(d, topic, size, id, hash) == 0 ? (int32_t)(d->queues.size - 1) : -1;
}

static inline rmq_queue *rmq_queue_at(rmq_dispatcher *d, int32_t number) {
    return (rmq_queue *)d->queues.data + number;
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

/* Take down what follows from a unit; 0, or -1 when there is no memory. */
static inline int rmq_collect(rmq_dispatcher *d, const rmq_unit *u, int32_t number, int64_t queue_offset,
                              int64_t position, const uint8_t *readable_end, rmq_classifier *classify) {
    const int64_t timestamp = rmq_i64(u->store_timestamp);
    const uint8_t *const p = u->properties;
    rmq_splitter *const s = &d->splitter;
    const rmq_known_names *names, *known;
    d->last_timestamp = timestamp;
    d->inner_batches += (u->sys_flag & RMQ_SYSFLAG_INNER_BATCH) != 0;
    if ((u->sys_flag & RMQ_SYSFLAG_TRANSACTION_TYPE) == RMQ_SYSFLAG_TRANSACTION_ROLLBACK) return 0;
    const int32_t n = rmq_split(s, p, u->properties_length, readable_end, classify, &names, &known);
    rmq_queue *const q = rmq_queue_at(d, number);
    if (rmq_is_queued(u)) {
        RMQ_TRY(rmq_list_reserve(&d->units, 1, sizeof(rmq_queue_unit)));
        int64_t tags_code = q->is_schedule ? rmq_due(s, p, n, timestamp) : 0;
        if (tags_code == 0 && names->tags >= 0) {
            const rmq_property *tags = &s->found[names->tags];
            tags_code = (int32_t)rmq_java_hash(0, p + tags->separator + 1, tags->end - tags->separator - 1);
        }
        if (q->pending++ == 0) {
            RMQ_TRY(rmq_list_reserve(&d->touched, 1, sizeof(int32_t)));
            ((int32_t *)d->touched.data)[d->touched.size++] = number;
        }
        ((rmq_queue_unit *)d->units.data)[d->units.size++] =
            (rmq_queue_unit){queue_offset, position, tags_code, number, u->total};
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

/* ---- giving out places */

/* Staged units, one behind the other: window[at .. size), whose places begin at physical offset `position`. */
typedef struct {
    uint8_t *window;
    int64_t at, size, position, segment_end;
    int verify_crc;
} rmq_staged;

/* Give the units their places until one has none in the segment (RMQ_FULL), or all have theirs (RMQ_LIMIT), or one is none.
 * Answers 0, or -1 when there is no memory; *status says why it stopped. */
static inline int rmq_place_with(rmq_dispatcher *d, rmq_staged *w, int64_t *count, int *status, rmq_finding *why,
                                 rmq_classifier *classify) {
    for (;; *count += 1) {
        uint8_t *const p = w->window + w->at;
        const int64_t left = w->size - w->at, room = w->segment_end - w->position;
        rmq_unit u;
        *status = RMQ_LIMIT;
        if (left == 0) return 0;
        /* Where it is meant to go is not in a staged unit, and what there may be of it does not matter. */
        const int64_t stored = left < RMQ_AT_SYSFLAG ? 0 : rmq_i64(p + RMQ_AT_PHYSICAL_OFFSET);
        *status = rmq_unit_at(p, left, stored, INT64_MAX, w->verify_crc, &u, why);
        if (*status != RMQ_OK) return 0;
        if (u.total + RMQ_BLANK_SIZE > room) {
            *status = rmq_fail(why, RMQ_FULL, u.total + RMQ_BLANK_SIZE, room);
            return 0;
        }
        __builtin_prefetch(p + u.total);
        __builtin_prefetch(p + u.total + 64);
        const int32_t number = rmq_find_queue(d, u.topic, u.topic_length, rmq_i32(p + RMQ_AT_QUEUE_ID));
        if (number < 0) return -1;
        int64_t *const next = &rmq_queue_at(d, number)->next;
        const int64_t queue_offset = rmq_is_queued(&u) ? *next : 0;
        RMQ_TRY(rmq_collect(d, &u, number, queue_offset, w->position, w->window + w->size, classify));
        *next += rmq_is_queued(&u);
        rmq_put_i64(p + RMQ_AT_QUEUE_OFFSET, queue_offset);
        rmq_put_i64(p + RMQ_AT_PHYSICAL_OFFSET, w->position);
        w->at += u.total;
        w->position += u.total;
    }
}

/* ---- reading a log as it stands */

/* A window to walk through, from *position to `stop`, at most `most` units; as rmq_scan. Answers as rmq_place_with. */
static inline int rmq_dispatch_with(rmq_dispatcher *d, const uint8_t *window, int64_t size, int64_t base,
                                    int64_t *position, int64_t stop, int64_t segment_end, int verify_crc, int64_t most,
                                    int64_t *count, int *status, rmq_finding *why, rmq_classifier *classify) {
    for (*status = RMQ_FULL; *count < most; *count += 1) {
        rmq_unit u;
        *status = rmq_next(window, size, base, *position, stop, segment_end, verify_crc, &u, why);
        if (*status != RMQ_OK) return 0;
        *status = RMQ_FULL;
        __builtin_prefetch(u.start + u.total);
        __builtin_prefetch(u.start + u.total + 64);
        const int32_t number = rmq_find_queue(d, u.topic, u.topic_length, rmq_i32(u.start + RMQ_AT_QUEUE_ID));
        if (number < 0) return -1;
        const int64_t queue_offset = rmq_i64(u.start + RMQ_AT_QUEUE_OFFSET);
        RMQ_TRY(rmq_collect(d, &u, number, queue_offset, *position, window + size, classify));
        int64_t *const next = &rmq_queue_at(d, number)->next;
        if (rmq_is_queued(&u) && queue_offset >= *next && queue_offset < rmq_max_queue_offset) *next = queue_offset + 1;
        *position += u.total;
    }
    return 0;
}

#if RMQ_X86
RMQ_AVX2 __attribute__((flatten)) static int rmq_place_avx2(rmq_dispatcher *d, rmq_staged *w, int64_t *count,
                                                            int *status, rmq_finding *why) {
    return rmq_place_with(d, w, count, status, why, rmq_classify_avx2);
}

RMQ_AVX2 __attribute__((flatten)) static int rmq_dispatch_avx2(rmq_dispatcher *d, const uint8_t *window, int64_t size,
                                                               int64_t base, int64_t *position, int64_t stop,
                                                               int64_t segment_end, int verify_crc, int64_t most,
                                                               int64_t *count, int *status, rmq_finding *why) {
    return rmq_dispatch_with(d, window, size, base, position, stop, segment_end, verify_crc, most, count, status, why,
                             rmq_classify_avx2);
}
#endif

static int rmq_place(rmq_dispatcher *d, rmq_staged *w, int64_t *count, int *status, rmq_finding *why) {
#if RMQ_X86
    if (rmq_has_avx2()) return rmq_place_avx2(d, w, count, status, why);
#endif
    return rmq_place_with(d, w, count, status, why, rmq_classify);
}

static int rmq_dispatch(rmq_dispatcher *d, const uint8_t *window, int64_t size, int64_t base, int64_t *position,
                        int64_t stop, int64_t segment_end, int verify_crc, int64_t most, int64_t *count, int *status,
                        rmq_finding *why) {
#if RMQ_X86
    if (rmq_has_avx2())
        return rmq_dispatch_avx2(d, window, size, base, position, stop, segment_end, verify_crc, most, count, status,
                                 why);
#endif
    return rmq_dispatch_with(d, window, size, base, position, stop, segment_end, verify_crc, most, count, status, why,
                             rmq_classify);
}

/* ---- handing over */

/* The collected ConsumeQueue units as they are on disk, queue by queue: units.size * 20 bytes at `out`. The runs of each queue
 * go to `runs`, of which there is room for units.size. How many there are, or -1 when there is no memory. */
static int64_t rmq_group(rmq_dispatcher *d, uint8_t *out, rmq_run *runs) {
    const rmq_queue_unit *const units = d->units.data;
    const int32_t *const touched = d->touched.data;
    const int64_t n = d->units.size;
    if (n == 0) return 0;
    int64_t *const offsets = malloc((size_t)n * sizeof *offsets);
    if (offsets == NULL) return -1;
    for (int64_t i = 0, before = 0; i < d->touched.size; i++) { /* `pending` becomes where the queue's next unit goes */
        rmq_queue *q = rmq_queue_at(d, touched[i]);
        const int64_t pending = q->pending;
        q->pending = before;
        before += pending;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = rmq_queue_at(d, units[i].queue)->pending++;
        uint8_t *const p = out + RMQ_QUEUE_UNIT_SIZE * place;
        rmq_put_i64(p, units[i].position);
        rmq_put_i32(p + 8, units[i].size);
        rmq_put_i64(p + 12, units[i].tags_code);
        offsets[place] = units[i].queue_offset;
    }
    int64_t count = 0;
    for (int64_t i = 0, place = 0; i < d->touched.size; i++) {
        rmq_queue *q = rmq_queue_at(d, touched[i]);
        const int64_t end = q->pending;
        for (int64_t first = 1; place < end; place++, first = 0) {
            if (first || offsets[place - 1] == INT64_MAX || offsets[place] != offsets[place - 1] + 1)
                runs[count++] = (rmq_run){touched[i], offsets[place], 0};
            runs[count - 1].count += 1;
        }
        q->pending = 0;
    }
    free(offsets);
    return count;
}

/* Begin anew, with the queues that are known. */
static void rmq_forget(rmq_dispatcher *d) {
    d->units.size = d->entries.size = d->touched.size = 0;
    d->last_timestamp = d->inner_batches = 0;
}

#endif
