/* The newest entry of each key, from several runs of entries in order: the answer of a RocksDB from its files and logs.
 *
 * Keys are internal: the user's key, and eight bytes for sequence number and type. For each user's key the entry with
 * the highest sequence number counts: a value, or a deletion. A range tombstone hides older entries. */
#ifndef RMQ_NEWEST_H
#define RMQ_NEWEST_H

#include <stdint.h>
#include <string.h>

#include "sorted_block.h"

enum { RMQ_TYPE_DELETION = 0, RMQ_TYPE_VALUE = 1, RMQ_TYPE_SINGLE_DELETION = 7, RMQ_NOT_IN_ORDER = 256 };

/* Entries of one run, in order of keys, newer ones of a key first: rmq_first_too_late() proves it. */
typedef struct {
    const uint8_t *keys;
    const int64_t *key_starts; /* and where the last one ends */
    const uint8_t *values;
    const int64_t *value_starts;
    const int64_t *value_ends;
    int64_t at, end;
    int is_plain; /* each entry is a value, and the only one of its user's key */
} rmq_run;

/* Deleted ranges, disjoint and in order: in [bounds 2i, 2i + 1) entries older than newest[i] are deleted. */
typedef struct {
    const uint8_t *keys;
    const int64_t *starts;
    const uint64_t *newest;
    int64_t at, count;
} rmq_tombstones;

typedef struct {
    rmq_run *runs;
    int32_t *heap; /* those that have an entry left, the one that comes first at 0 */
    int32_t count;
    rmq_tombstones tombstones;
    const uint8_t *last; /* the user's key that was answered last; NULL: none was */
    int64_t last_size;
    int32_t *from_run; /* the answer: which entries, in order */
    int64_t *from_entry;
    int64_t taken, key_bytes, value_bytes;
    int32_t stopped; /* the run without more entries, or with an entry of an unknown type; -1: none */
    int32_t unknown; /* the unknown type; -1: none; RMQ_NOT_IN_ORDER: the entry comes too late */
} rmq_newest;

static inline int rmq_compare(const uint8_t *a, int64_t m, const uint8_t *b, int64_t n) {
    const int first = m > 0 && n > 0 ? memcmp(a, b, (size_t)(m < n ? m : n)) : 0;
    return first != 0 ? first : (m > n) - (m < n);
}

static inline int64_t rmq_user_key(const rmq_run *r, const uint8_t **key) {
    *key = r->keys + r->key_starts[r->at];
    return r->key_starts[r->at + 1] - r->key_starts[r->at] - RMQ_SEQUENCE;
}

static inline int rmq_comes_before(const rmq_run *a, const rmq_run *b) {
    const uint8_t *p, *q;
    const int64_t m = rmq_user_key(a, &p), n = rmq_user_key(b, &q);
    const int order = rmq_compare(p, m, q, n);
    return order != 0 ? order < 0 : rmq_le64(p + m) > rmq_le64(q + n);
}

/* The first entry that does not come after the one before it; `end` where there is none. Says whether a run is plain. */
static int64_t rmq_first_too_late(rmq_run *run) {
    const uint8_t *before = NULL;
    int64_t size = 0;
    run->is_plain = 1;
    for (int64_t i = run->at; i < run->end; i++) {
        const uint8_t *const key = run->keys + run->key_starts[i];
        const int64_t n = run->key_starts[i + 1] - run->key_starts[i] - RMQ_SEQUENCE;
        if (before != NULL) {
            const int order = rmq_compare(before, size, key, n);
            if (order > 0 || (order == 0 && rmq_le64(before + size) <= rmq_le64(key + n))) return i;
            run->is_plain &= order < 0;
        }
        run->is_plain &= key[n] == RMQ_TYPE_VALUE;
        before = key;
        size = n;
    }
    return run->end;
}

static void rmq_sift(rmq_newest *w, int32_t at) {
    const int32_t moved = w->heap[at];
    for (int32_t child; (child = 2 * at + 1) < w->count; at = child) {
        if (child + 1 < w->count && rmq_comes_before(&w->runs[w->heap[child + 1]], &w->runs[w->heap[child]])) child++;
        if (!rmq_comes_before(&w->runs[w->heap[child]], &w->runs[moved])) break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = moved;
}

static inline int rmq_is_hidden(rmq_tombstones *t, const uint8_t *key, int64_t size, uint64_t sequence) {
    while (t->at < t->count) {
        const int64_t *const s = t->starts + 2 * t->at;
        if (rmq_compare(key, size, t->keys + s[1], s[2] - s[1]) < 0)
            return rmq_compare(key, size, t->keys + s[0], s[1] - s[0]) >= 0 && sequence < t->newest[t->at];
        t->at++;
    }
    return 0;
}

/* Do all entries of a run come before those of the other ones in the heap? */
static int rmq_is_apart(const rmq_newest *w, int32_t number) {
    rmq_run last = w->runs[number];
    last.at = last.end - 1;
    const uint8_t *p, *q;
    const int64_t m = rmq_user_key(&last, &p);
    for (int32_t i = 0; i < w->count; i++) {
        if (w->heap[i] == number) continue;
        const int64_t n = rmq_user_key(&w->runs[w->heap[i]], &q);
        if (rmq_compare(p, m, q, n) >= 0) return 0;
    }
    return 1;
}

/* Take all of a plain run that comes before all others. */
static void rmq_take_all(rmq_newest *w, int32_t number) {
    rmq_run *const run = &w->runs[number];
    for (int64_t i = run->at; i < run->end; i++) {
        w->from_run[w->taken] = number;
        w->from_entry[w->taken++] = i;
        w->value_bytes += run->value_ends[i] - run->value_starts[i];
    }
    w->key_bytes = run->key_starts[run->end] - run->key_starts[run->at] - RMQ_SEQUENCE * w->taken;
    run->at = run->end - 1;
    w->last_size = rmq_user_key(run, &w->last);
    run->at = run->end;
    w->stopped = number;
}

/* Go on until a run has no more entries (the caller brings its next ones, or leaves it out) or there is no run. */
static void rmq_take_newest(rmq_newest *w) {
    w->taken = w->key_bytes = w->value_bytes = 0;
    w->stopped = w->unknown = -1;
    for (int32_t i = w->count / 2 - 1; i >= 0; i--) rmq_sift(w, i);
    if (w->count > 0 && w->tombstones.count == 0) {
        const rmq_run *const run = &w->runs[w->heap[0]];
        const uint8_t *key;
        const int64_t size = rmq_user_key(run, &key);
        const int is_next = w->last == NULL || rmq_compare(key, size, w->last, w->last_size) > 0;
        if (run->is_plain && is_next && rmq_is_apart(w, w->heap[0])) {
            rmq_take_all(w, w->heap[0]);
            return;
        }
    }
    while (w->count > 0) {
        const int32_t number = w->heap[0];
        rmq_run *const run = &w->runs[number];
        const uint8_t *key;
        const int64_t size = rmq_user_key(run, &key);
        const int order = w->last == NULL ? 1 : rmq_compare(key, size, w->last, w->last_size);
        if (order < 0) {
            w->stopped = number;
            w->unknown = RMQ_NOT_IN_ORDER;
            return;
        }
        if (order > 0) {
            const uint64_t trailer = rmq_le64(key + size);
            const int type = trailer & 0xFF;
            if (type != RMQ_TYPE_VALUE && type != RMQ_TYPE_DELETION && type != RMQ_TYPE_SINGLE_DELETION) {
                w->stopped = number;
                w->unknown = type;
                return;
            }
            w->last = key;
            w->last_size = size;
            if (!rmq_is_hidden(&w->tombstones, key, size, trailer >> 8) && type == RMQ_TYPE_VALUE) {
                w->from_run[w->taken] = number;
                w->from_entry[w->taken++] = run->at;
                w->key_bytes += size;
                w->value_bytes += run->value_ends[run->at] - run->value_starts[run->at];
            }
        }
        if (++run->at == run->end) {
            w->stopped = number;
            return;
        }
        rmq_sift(w, 0);
    }
}

/* The entries that were taken, one after the other. */
static void rmq_copy_newest(const rmq_newest *w, uint8_t *keys, int64_t *key_starts, uint8_t *values, int64_t *value_starts) {
    key_starts[0] = value_starts[0] = 0;
    for (int64_t i = 0; i < w->taken; i++) {
        const rmq_run *const r = &w->runs[w->from_run[i]];
        const int64_t n = w->from_entry[i], k = r->key_starts[n], v = r->value_starts[n];
        const int64_t key = r->key_starts[n + 1] - k - RMQ_SEQUENCE, value = r->value_ends[n] - v;
        /* Where all of them are empty there may be no memory at either end. */
        if (key > 0) memcpy(keys + key_starts[i], r->keys + k, (size_t)key);
        if (value > 0) memcpy(values + value_starts[i], r->values + v, (size_t)value);
        key_starts[i + 1] = key_starts[i] + key;
        value_starts[i + 1] = value_starts[i] + value;
    }
}

/* The first of entries [at, end) whose user's key is not below `key`. */
static int64_t rmq_first_not_below(const rmq_run *run, const uint8_t *key, int64_t size) {
    rmq_run r = *run;
    int64_t low = run->at, high = run->end;
    while (low < high) {
        const uint8_t *p;
        r.at = low + (high - low) / 2;
        const int64_t n = rmq_user_key(&r, &p);
        if (rmq_compare(p, n, key, size) < 0)
            low = r.at + 1;
        else
            high = r.at;
    }
    return low;
}

#endif
