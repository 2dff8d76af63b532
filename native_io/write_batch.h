/* A RocksDB WriteBatch, as a write-ahead log has it: sequence number (8 bytes), count (4), and so many records. A record is
 * its type, in some types the column family (varint32), a key, and in some a value, with their lengths before them. Each
 * counted record has the sequence number after the one before. */
#ifndef RMQ_WRITE_BATCH_H
#define RMQ_WRITE_BATCH_H

#include <stdint.h>
#include <string.h>

#include "varint.h"

enum {
    RMQ_BATCH_HEADER = 12,
    RMQ_BATCH_DELETION = 0,
    RMQ_BATCH_VALUE = 1,
    RMQ_BATCH_MERGE = 2,
    RMQ_BATCH_LOG_DATA = 3,
    RMQ_BATCH_SINGLE_DELETION = 7,
    RMQ_BATCH_NOOP = 0xD,
    RMQ_BATCH_RANGE_DELETION = 0xF,
};

typedef enum { RMQ_BATCH_SOUND, RMQ_BATCH_SHORT, RMQ_BATCH_RECORD, RMQ_BATCH_TYPE, RMQ_BATCH_COUNT } rmq_batch_status;

typedef struct {
    const uint8_t *bytes; /* of all batches */
    const int64_t *ends;  /* of each */
    int64_t count;
    int64_t records; /* that were found */
    int64_t position, batch; /* of the unsound bytes */
    rmq_batch_status status;
} rmq_batches;

/* Columns of records: where keys and values lie. A trailer is as that of an internal key. */
typedef struct {
    int64_t *families, *trailers, *key_starts, *key_ends, *value_starts, *value_ends;
} rmq_batch_records;

/* The type that a type with a column family stands for; -1: the type is not known. */
static inline int rmq_plain_type(int type, int *has_family) {
    *has_family = 1;
    switch (type) {
        case 4: return RMQ_BATCH_DELETION;
        case 5: return RMQ_BATCH_VALUE;
        case 6: return RMQ_BATCH_MERGE;
        case 8: return RMQ_BATCH_SINGLE_DELETION;
        case 0xE: return RMQ_BATCH_RANGE_DELETION;
    }
    *has_family = 0;
    switch (type) {
        case RMQ_BATCH_DELETION:
        case RMQ_BATCH_VALUE:
        case RMQ_BATCH_MERGE:
        case RMQ_BATCH_SINGLE_DELETION:
        case RMQ_BATCH_RANGE_DELETION:
        case RMQ_BATCH_LOG_DATA:
        case RMQ_BATCH_NOOP: return type;
    }
    return -1;
}

static inline int rmq_has_value(int type) {
    return type == RMQ_BATCH_VALUE || type == RMQ_BATCH_MERGE || type == RMQ_BATCH_RANGE_DELETION;
}

/* Walk all batches. With `into` NULL records are only checked and counted. */
static void rmq_walk_batches(rmq_batches *b, const rmq_batch_records *into) {
    b->records = 0;
    b->status = RMQ_BATCH_SOUND;
    for (b->batch = 0; b->batch < b->count; b->batch++) {
        const uint8_t *p = b->bytes + (b->batch > 0 ? b->ends[b->batch - 1] : 0);
        const uint8_t *const end = b->bytes + b->ends[b->batch];
        b->position = p - b->bytes;
        if (end - p < RMQ_BATCH_HEADER) {
            b->status = RMQ_BATCH_SHORT;
            return;
        }
        uint64_t sequence = rmq_le64(p);
        uint32_t left = rmq_le32(p + 8);
        for (p += RMQ_BATCH_HEADER; p < end;) {
            int has_family;
            uint64_t family = 0, key_size, value_size = 0;
            const uint8_t *key, *value = p;
            b->position = p - b->bytes;
            const int type = rmq_plain_type(*p++, &has_family);
            if (type < 0) {
                b->status = RMQ_BATCH_TYPE;
                return;
            }
            if (type == RMQ_BATCH_NOOP) continue;
            if (has_family) p = rmq_varint(p, end, 32, &family);
            if (p != NULL) p = rmq_slice(p, end, &key, &key_size);
            if (p != NULL && rmq_has_value(type)) p = rmq_slice(p, end, &value, &value_size);
            if (p == NULL) {
                b->status = RMQ_BATCH_RECORD;
                return;
            }
            if (type == RMQ_BATCH_LOG_DATA) continue;
            if (left-- == 0) {
                b->status = RMQ_BATCH_COUNT;
                return;
            }
            if (into != NULL) {
                const int64_t n = b->records;
                into->families[n] = (int64_t)family;
                into->trailers[n] = (int64_t)(sequence << 8 | (uint64_t)type);
                into->key_starts[n] = key - b->bytes;
                into->key_ends[n] = into->key_starts[n] + (int64_t)key_size;
                into->value_starts[n] = rmq_has_value(type) ? value - b->bytes : 0;
                into->value_ends[n] = into->value_starts[n] + (int64_t)value_size;
            }
            b->records += 1;
            sequence += 1;
        }
        if (left != 0) {
            b->status = RMQ_BATCH_COUNT;
            return;
        }
    }
}

/* Does record i come before record j: by key, the newer one first? */
static inline int rmq_record_before(const rmq_batch_records *r, const uint8_t *bytes, int64_t i, int64_t j) {
    const int64_t m = r->key_ends[i] - r->key_starts[i], n = r->key_ends[j] - r->key_starts[j];
    const int first = memcmp(bytes + r->key_starts[i], bytes + r->key_starts[j], (size_t)(m < n ? m : n));
    if (first != 0) return first < 0;
    if (m != n) return m < n;
    return (uint64_t)r->trailers[i] > (uint64_t)r->trailers[j];
}

/* Put `order`, numbers of records, into the order of their keys. `spare` is as long. */
static void rmq_sort_records(const rmq_batch_records *r, const uint8_t *bytes, int64_t *order, int64_t *spare, int64_t n) {
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            const int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            int64_t i = low, j = middle;
            for (int64_t k = low; k < high; k++) {
                const int right = i == middle || (j < high && rmq_record_before(r, bytes, order[j], order[i]));
                spare[k] = order[right ? j++ : i++];
            }
        }
        memcpy(order, spare, (size_t)n * sizeof *order);
    }
}

#endif
