/* Selections: is a unit selected? Cheap checks come first, and the properties last. */
#ifndef RMQ_SELECT_H
#define RMQ_SELECT_H

#include <stdint.h>
#include <stdlib.h>

#include "conditions.h"
#include "copies.h"
#include "inner.h"
#include "queues.h"
#include "unit.h"
#include "walk.h"

/* How many queues are remembered at once, some 25 MB; a broker has fewer. A hostile log can name any number: the filter
 * then forgets them all, and asks again. */
enum { RMQ_MOST_JUDGED = 1 << 18 };

typedef struct {
    rmq_bounds store_timestamp; /* milliseconds */
    rmq_bounds physical_offset;
    int any_queue; /* topic, queueId and queueOffset may be anything */
    rmq_queues queues; /* the judged queues */
    rmq_list judged;   /* of rmq_bounds: which queueOffsets are selected, by the queue's number */
    int32_t last;      /* the number that was found last: in a log of one busy queue the next one is the same */
    rmq_list conditions; /* of rmq_values */
    int looks_in_bodies; /* a condition is about the body */
    int explodes;        /* queueOffset and conditions are about the messages in a batch */
    int status;          /* what is wrong with a batch, after RMQ_DAMAGED */
    rmq_copies copies;
} rmq_filter;

/* The decision on a unit. */
enum { RMQ_REFUSED, RMQ_SELECTED, RMQ_UNKNOWN, RMQ_DAMAGED };

static void rmq_free_filter(rmq_filter *f) {
    rmq_free_queues(&f->queues);
    free(f->judged.data);
    rmq_free_conditions(&f->conditions);
}

/* Before units of a window are looked at: what looks into their bodies, or NULL. What it has decompressed before lay in another
 * window, which may have been at the same address. */
static const rmq_body_search *rmq_begin_searches(rmq_filter *f) {
    rmq_values *const all = f->conditions.data;
    for (int64_t i = 0; f->looks_in_bodies && i < f->conditions.size; i++) {
        if (all[i].field == RMQ_BY_BODY && all[i].body != NULL) {
            all[i].body->of = NULL;
            return all[i].body;
        }
    }
    return NULL;
}

/* The selected queueOffsets of a queue, or NULL where the queue is not judged yet. */
static inline const rmq_bounds *rmq_judged_of(rmq_filter *f, const rmq_unit *u) {
    const int32_t id = rmq_i32(u->start + RMQ_AT_QUEUE_ID);
    if (f->judged.size == 0) return NULL;
    if (!rmq_is_queue(&f->queues, f->last, u->topic, u->topic_length, id)) {
        const int32_t number = rmq_find_queue(&f->queues, u->topic, u->topic_length, id);
        if (number < 0) return NULL;
        f->last = number;
    }
    return (const rmq_bounds *)f->judged.data + f->last;
}

/* Remember the selected queueOffsets of a queue not judged yet. 0, or -1 when there is no memory. */
static int rmq_judge(rmq_filter *f, const uint8_t *topic, int32_t n, int32_t queue_id, rmq_bounds queue_offset) {
    if (f->judged.size == RMQ_MOST_JUDGED) {
        rmq_forget_queues(&f->queues);
        f->judged.size = f->last = 0;
    }
    RMQ_TRY(rmq_list_reserve(&f->judged, 1, sizeof(rmq_bounds)));
    const int32_t number = rmq_add_queue(&f->queues, topic, n, queue_id);
    if (number < 0) return -1;
    ((rmq_bounds *)f->judged.data)[number] = queue_offset;
    f->judged.size += 1;
    return 0;
}

/* Is a message of a batch selected, where its topic and store time are? `judged`: of its queue, or NULL: any queueOffset. */
static inline int rmq_selects_inner(const rmq_filter *f, const rmq_bounds *judged, const rmq_inner *inner) {
    return (judged == NULL || rmq_within(*judged, inner->unit.queue_offset)) && rmq_all_hold(&f->conditions, &inner->unit);
}

/* Is any message of a batch selected? What decides is in the body, so the body is checked first. */
__attribute__((noinline)) static int rmq_batch_verdict(rmq_filter *f, const rmq_bounds *judged, const rmq_unit *batch,
                                                       int verify_crc, rmq_finding *why) {
    rmq_inner inner = rmq_before_first(batch);
    f->status = verify_crc ? rmq_check_crc(batch, why) : RMQ_OK;
    if (f->status == RMQ_OK) f->status = rmq_check_inner(batch, why);
    if (f->status != RMQ_OK) return RMQ_DAMAGED;
    while (rmq_next_inner(batch, &inner, why) == RMQ_OK)
        if (rmq_selects_inner(f, judged, &inner)) return RMQ_SELECTED;
    return RMQ_REFUSED;
}

/* The decision on a unit by its body, among others: what has a wrong CRC decides nothing. */
__attribute__((noinline)) static int rmq_verdict_by_body(rmq_filter *f, const rmq_unit *u, int verify_crc, rmq_finding *why) {
    f->status = verify_crc ? rmq_check_crc(u, why) : RMQ_OK;
    if (f->status != RMQ_OK) return RMQ_DAMAGED;
    return rmq_all_hold(&f->conditions, u) ? RMQ_SELECTED : RMQ_REFUSED;
}

/* The decision on a unit; RMQ_DAMAGED: f->status says what is wrong with it. */
static inline int rmq_verdict(rmq_filter *f, const rmq_unit *u, int64_t position, int verify_crc, rmq_finding *why) {
    const rmq_bounds *judged = NULL;
    const int is_batch = f->explodes && rmq_is_batch(u);
    if (!rmq_within(f->store_timestamp, rmq_i64(u->store_timestamp))) return RMQ_REFUSED;
    if (!rmq_within(f->physical_offset, position)) return RMQ_REFUSED;
    if (!f->any_queue) {
        judged = rmq_judged_of(f, u);
        if (judged == NULL) return RMQ_UNKNOWN;
        if (!is_batch && !rmq_within(*judged, u->queue_offset)) return RMQ_REFUSED;
        if (judged->least > judged->most) return RMQ_REFUSED;
    }
    if (__builtin_expect(is_batch, 0)) return rmq_batch_verdict(f, judged, u, verify_crc, why);
    if (f->looks_in_bodies) return rmq_verdict_by_body(f, u, verify_crc, why);
    return rmq_all_hold(&f->conditions, u) ? RMQ_SELECTED : RMQ_REFUSED;
}

/* rmq_scan, but only selected units are listed, and only their CRC is checked. RMQ_ASK: `asked` is the unit at the
 * walk's position, whose queue has to be judged first; the next call goes on there. */
static void rmq_select(rmq_filter *f, rmq_walk *w, int64_t *positions, int64_t capacity, rmq_unit *asked) {
    int64_t at = w->position, n = w->count;
    int status = RMQ_FULL;
    while (n < capacity) {
        rmq_unit u;
        status = rmq_next(w, &at, 0, &u, &w->why);
        if (status != RMQ_OK) break;
        __builtin_prefetch(u.start + u.total); /* the next unit's head */
        const int copy = rmq_see_copy(&f->copies, &u, &w->why);
        if (copy == RMQ_COPY) {
            at += u.total;
            status = RMQ_FULL;
            continue;
        }
        if (__builtin_expect(copy != RMQ_OK, 0)) {
            status = copy;
            break;
        }
        const int verdict = rmq_verdict(f, &u, at, w->verify_crc, &w->why);
        if (verdict == RMQ_DAMAGED) {
            status = f->status;
            break;
        }
        if (verdict == RMQ_UNKNOWN) {
            *asked = u;
            status = RMQ_ASK;
            break;
        }
        if (verdict == RMQ_SELECTED) {
            if (w->verify_crc && (status = rmq_check_crc(&u, &w->why)) != RMQ_OK) break;
            positions[n++] = at;
            rmq_note_unit(&f->copies, &u);
        } else {
            rmq_note_refused(&f->copies, &u, w->verify_crc);
        }
        at += u.total;
        status = RMQ_FULL;
    }
    w->position = at;
    w->count = n;
    w->status = status;
}

/* An accelerator's claims on the places of units, and the units' bytes: lengths[i] bytes from starts[i] on in the
 * window. `sizes` and `queue_offsets` are the claimed values, or NULL. */
typedef struct {
    const uint8_t *window;
    int64_t window_size;
    const int64_t *positions, *starts, *lengths;
    const int32_t *sizes;
    const int64_t *queue_offsets;
    int64_t count;
    int64_t segment_end;
    int verify_crc;
    /* What has come of it so far. */
    int64_t taken;    /* the number of claims checked */
    int64_t selected; /* the number of units selected among them */
    rmq_finding why;
} rmq_claims;

/* Check the claims from c->taken on: the indices of those whose units are selected go to selected[0 .. c->selected).
 * RMQ_LIMIT: all were checked; RMQ_CONTRADICTED: the log has another unit where claim c->taken should be; RMQ_MORE,
 * RMQ_ASK: see rmq_select; else there is no unit at all, and the status says why. */
static int rmq_pick(rmq_filter *f, rmq_claims *c, int64_t *selected, rmq_unit *asked) {
    for (; c->taken < c->count; c->taken += 1) {
        const int64_t i = c->taken, at = c->positions[i], in_window = c->starts[i], length = c->lengths[i];
        rmq_unit u;
        if (at < 0 || at >= c->segment_end || in_window < 0 || in_window > c->window_size || length < 0 ||
            length > c->window_size - in_window)
            return rmq_fail(&c->why, RMQ_CONTRADICTED, c->segment_end, at);
        const int status = rmq_unit_at(c->window + in_window, length, at, c->segment_end - at, 0, &u, &c->why);
        if (status != RMQ_OK) return status;
        if (c->sizes != NULL && c->sizes[i] != u.total)
            return rmq_fail(&c->why, RMQ_CONTRADICTED, c->sizes[i], u.total);
        if (c->queue_offsets != NULL && c->queue_offsets[i] != u.queue_offset)
            return rmq_fail(&c->why, RMQ_CONTRADICTED, c->queue_offsets[i], u.queue_offset);
        if (!f->any_queue) {
            const rmq_bounds *judged = rmq_judged_of(f, &u);
            if (judged == NULL) {
                *asked = u;
                return RMQ_ASK;
            }
            /* Only selected queues make claims: another queue here is a contradiction, not a message to pass over. */
            const int is_wrong = f->explodes && rmq_is_batch(&u) ? judged->least > judged->most : !rmq_within(*judged, u.queue_offset);
            if (c->queue_offsets != NULL && is_wrong)
                return rmq_fail(&c->why, RMQ_CONTRADICTED, c->queue_offsets[i], u.queue_offset);
        }
        const int verdict = rmq_verdict(f, &u, at, c->verify_crc, &c->why);
        if (verdict == RMQ_DAMAGED) return f->status;
        if (verdict == RMQ_SELECTED) {
            if (c->verify_crc && rmq_check_crc(&u, &c->why) != RMQ_OK) return RMQ_BAD_BODY_CRC;
            selected[c->selected++] = i;
        }
    }
    return RMQ_LIMIT;
}

#endif
