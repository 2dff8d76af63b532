/* Units of any log, dispatched and placed. Placed ones, dispatched as they lie then, give the same queue units and index entries. */
#include "dispatched.h"
#include "plain.h"
#include "units.h"

enum { OPTIONS = 4, VERIFY = 1, TAGS = 2, LIGHT = 4, BATCHES = 8, KEEP = 16, WRAPPED = 32 };

static const rmq_wrapping wrapping = {FUZZ_HEADER, 4, 24, 44};

static rmq_walk walk_of(const uint8_t *window, size_t size, int64_t base, int64_t segment_end, int verify) {
    return (rmq_walk){window, (int64_t)size, base, INT64_MAX, segment_end, verify, base, 0, RMQ_MORE, {0, 0}, NULL};
}

/* ConsumeQueue units as the plain way finds them, for a log of 20-byte units without light queues. */
static void check_plain(const uint8_t *window, size_t size, int64_t base, rmq_dispatcher *d) {
    const rmq_queue_unit *const units = d->units.data;
    int64_t count = 0;
    plain_unit u;
    for (int64_t at = 0; plain_is_unit(window + at, (int64_t)size - at, base + at, INT64_MAX, 0, &u); at += u.total) {
        plain_pair pairs[600];
        if ((u.sys_flag & 12) == 4 || (u.sys_flag & 12) == 12) continue;
        if (count == d->units.size) break; /* the walk may have ended before this one */
        const rmq_queue_unit *const unit = &units[count++];
        CHECK(unit->position == base + at && unit->size == u.total && unit->queue_offset == u.queue_offset);
        const plain_pair *const tags = plain_find(pairs, plain_pairs(u.properties, u.properties_size, pairs, 600), "TAGS");
        const int is_delayed = plain_same(u.topic, u.topic_size, (const uint8_t *)"SCHEDULE_TOPIC_XXXX", 19);
        const int64_t code = tags == NULL ? 0 : (int32_t)rmq_java_hash(0, tags->value, tags->value_size);
        if (!is_delayed) CHECK(unit->tags_code == code);
    }
    CHECK(count == d->units.size);
}

/* Placed units: those that are in queues are numbered from 0 on in each, the others are 0. */
static void check_numbers(const uint8_t *window, int64_t size, int64_t base) {
    plain_unit u, v;
    for (int64_t at = 0; at < size; at += u.total) {
        int64_t before = 0;
        CHECK(plain_is_unit(window + at, size - at, base + at, INT64_MAX, 1, &u));
        const int is_queued = (u.sys_flag & 12) != 4 && (u.sys_flag & 12) != 12;
        for (int64_t other = 0; is_queued && other < at; other += v.total) {
            CHECK(plain_is_unit(window + other, size - other, base + other, INT64_MAX, 0, &v));
            before += (v.sys_flag & 12) != 4 && (v.sys_flag & 12) != 12 && v.queue_id == u.queue_id &&
                      plain_same(v.topic, v.topic_size, u.topic, u.topic_size);
        }
        CHECK(u.queue_offset == before && u.store_timestamp != 0);
    }
}

static int64_t base_in(const uint8_t *data, size_t window_size) {
    (void)window_size;
    return (int64_t)data[1] << 20;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < OPTIONS) return 0;
    const int flags = data[0];
    const size_t n = size - OPTIONS;
    const int64_t base = base_in(data, n), segment_end = base + (int64_t)n + (data[2] & 1 ? 8 : 100);
    uint8_t *const window = fuzz_copy(data + OPTIONS, n);
    rmq_dispatcher *dispatchers[3];
    for (int i = 0; i < 3; i++) dispatchers[i] = fuzz_dispatcher(flags & TAGS, flags & LIGHT, flags & BATCHES);

    rmq_walk w = walk_of(window, n, base, segment_end, flags & VERIFY), v = w;
    if (flags & WRAPPED) w.wrapping = v.wrapping = &wrapping;
    CHECK(rmq_dispatch(dispatchers[0], &w, INT64_MAX) == 0);
    for (int64_t count = 0;; count += v.count) { /* some units a call, on any machine */
        CHECK(rmq_dispatch_on(dispatchers[1], &v, 1 + data[3] % 4, RMQ_ANY_MACHINE) == 0);
        if (v.status == RMQ_FULL) continue;
        CHECK(count + v.count == w.count && v.status == w.status && v.position == w.position);
        break;
    }
    fuzz_check_dispatched(dispatchers[0], dispatchers[1]);
    if (!(flags & (LIGHT | BATCHES | WRAPPED))) check_plain(window, n, base, dispatchers[0]);
    rmq_free_dispatcher(dispatchers[0]);
    rmq_free_dispatcher(dispatchers[1]);

    rmq_dispatcher *const placed = fuzz_dispatcher(flags & TAGS, flags & LIGHT, flags & BATCHES), *const again = dispatchers[2];
    w = walk_of(window, n, base, segment_end, 1);
    CHECK(rmq_place(placed, &w, 1700000000000, (flags & KEEP) != 0) == 0);
    if (!(flags & KEEP)) check_numbers(window, w.position - base, base);
    v = walk_of(window, n, base, segment_end, 1);
    CHECK(rmq_dispatch(again, &v, w.count) == 0);
    CHECK(v.count == w.count && v.position == w.position);
    fuzz_check_dispatched(placed, again);
    rmq_free_dispatcher(placed);
    rmq_free_dispatcher(again);
    free(window);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    return fuzz_mutate_log(data, size, room, seed, OPTIONS, WRAPPED, base_in);
}
