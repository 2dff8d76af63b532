/* What a dispatcher has collected, in a form that two of them can be compared in. */
#ifndef FUZZ_DISPATCHED_H
#define FUZZ_DISPATCHED_H

#include "dispatch.h"
#include "fuzz.h"

static inline rmq_dispatcher *fuzz_dispatcher(int index_tags, int light_queues, int has_batches) {
    rmq_dispatcher *const d = calloc(1, sizeof *d);
    if (d == NULL) abort();
    d->index_tags = index_tags;
    d->light_queues = light_queues;
    if (has_batches) CHECK(rmq_add_batch_topic(d, (const uint8_t *)"TopicA", 6) == 0);
    rmq_forget(d);
    return d;
}

typedef struct {
    uint8_t *units;
    rmq_run *runs;
    int64_t size, run_count;
} fuzz_grouped;

/* The units of queues, with what has to be so of them; the dispatcher is as before. */
static inline fuzz_grouped fuzz_group(rmq_dispatcher *d) {
    fuzz_grouped g = {fuzz_memory((size_t)rmq_units_size(d)), fuzz_memory((size_t)d->units.size * sizeof(rmq_run)), rmq_units_size(d), 0};
    g.run_count = rmq_group(d, g.units, g.runs);
    CHECK(g.run_count >= 0 && g.run_count <= d->units.size);
    int64_t count = 0, bytes = 0;
    for (int64_t i = 0; i < g.run_count; i++) {
        CHECK(g.runs[i].count > 0 && g.runs[i].queue >= 0 && g.runs[i].queue < rmq_queue_count(&d->queues));
        count += g.runs[i].count;
        bytes += g.runs[i].count * g.runs[i].size;
    }
    CHECK(count == d->units.size && bytes == g.size);
    return g;
}

/* Have both collected the same? */
static inline void fuzz_check_dispatched(rmq_dispatcher *a, rmq_dispatcher *b) {
    CHECK(a->entries.size == b->entries.size && a->units.size == b->units.size && rmq_queue_count(&a->queues) == rmq_queue_count(&b->queues));
    for (int64_t i = 0; i < a->entries.size; i++) {
        const rmq_index_entry *const p = (rmq_index_entry *)a->entries.data + i, *const q = (rmq_index_entry *)b->entries.data + i;
        CHECK(p->position == q->position && p->timestamp == q->timestamp && p->hash == q->hash && p->hash >= 0);
    }
    CHECK(a->bytes == b->bytes && a->fall == b->fall && a->inner_batches == b->inner_batches);
    CHECK(a->odd_bodies.size == b->odd_bodies.size);
    CHECK(a->least_timestamp == b->least_timestamp && a->most_timestamp == b->most_timestamp);
    fuzz_grouped g = fuzz_group(a), h = fuzz_group(b);
    CHECK(g.size == h.size && memcmp(g.units, h.units, (size_t)g.size) == 0);
    CHECK(g.run_count == h.run_count && memcmp(g.runs, h.runs, (size_t)g.run_count * sizeof *g.runs) == 0);
    free(g.units);
    free(g.runs);
    free(h.units);
    free(h.runs);
}

#endif
