/* Blocks of RocksDB's block-based tables: entries in the order of their keys, each key without the prefix that it
 * shares with the key before.
 *
 * An entry is shared, unshared and value length (varint32 each), the unshared bytes of the key, and the value. In an index
 * of format version 4 or later there is no value length: the value is a handle (offset and size of a block, varint64 each),
 * or, where the key shares bytes with the one before, how much larger this block is than the one that it follows on.
 * After the entries: offsets of restart points, in some blocks a hash index, and how many restart points there are. */
#ifndef RMQ_SORTED_BLOCK_H
#define RMQ_SORTED_BLOCK_H

#include <stdint.h>
#include <string.h>

#include "varint.h"

enum {
    RMQ_SEQUENCE = 8,        /* bytes that end an internal key: sequence number << 8 | type of the entry */
    RMQ_BLOCK_TRAILER = 5,   /* after each block: compression, and the CRC of block and compression */
    RMQ_MOST_REPEATED = 128, /* keys together are at most so many times as long as their block: an entry is not free */
    RMQ_HASH_INDEX_BIT = 1u << 31,
};

/* Why a block is not sound. */
typedef enum {
    RMQ_BLOCK_SOUND,
    RMQ_BLOCK_RESTARTS,
    RMQ_BLOCK_ENTRY,
    RMQ_BLOCK_SHARED,
    RMQ_BLOCK_SHORT_KEY,
    RMQ_BLOCK_REPEATED,
    RMQ_BLOCK_HANDLE,
} rmq_block_status;

typedef struct {
    const uint8_t *bytes;
    int64_t size;
    int is_index;     /* values are handles */
    int is_delta;     /* values of an index have no lengths */
    int64_t least_key; /* bytes: RMQ_SEQUENCE where keys are internal ones */
    int64_t entries;
    int64_t key_bytes;
    int64_t position; /* of the entry that is not sound */
    rmq_block_status status;
} rmq_sorted_block;

/* The output of entries. In an index, a value's start and end are the offset and the end of the block that the entry
 * leads to. */
typedef struct {
    uint8_t *keys;
    int64_t *key_ends;
    int64_t *value_starts;
    int64_t *value_ends;
} rmq_entries;

/* The end of the entries, where the restart points begin; -1: the restart points do not fit. */
static inline int64_t rmq_entries_end(const uint8_t *bytes, int64_t size) {
    if (size < 4) return -1;
    int64_t end = size - 4;
    const uint32_t packed = rmq_le32(bytes + end);
    if (packed & RMQ_HASH_INDEX_BIT) {
        if (end < 2) return -1;
        end -= 2 + (bytes[end - 2] | bytes[end - 1] << 8);
    }
    end -= 4 * (int64_t)(packed & ~RMQ_HASH_INDEX_BIT);
    return end < 0 ? -1 : end;
}

/* Read the handle at p; *start and *end have the handle before. */
static inline const uint8_t *rmq_handle(const uint8_t *p, const uint8_t *stop, int is_next, int64_t *start, int64_t *end) {
    uint64_t first, second;
    if ((p = rmq_varint(p, stop, 64, &first)) == NULL) return NULL;
    if (is_next) {
        const int64_t more = (int64_t)(first >> 1) ^ -(int64_t)(first & 1);
        const int64_t size = *end - *start;
        if (more > INT64_MAX / 4 || more < -size || *end > INT64_MAX / 4) return NULL;
        *start = *end + RMQ_BLOCK_TRAILER;
        *end = *start + size + more;
        return p;
    }
    if ((p = rmq_varint(p, stop, 64, &second)) == NULL) return NULL;
    if (first > INT64_MAX / 4 || second > INT64_MAX / 4) return NULL;
    *start = (int64_t)first;
    *end = (int64_t)(first + second);
    return p;
}

/* Walk the entries. With `into` NULL they are only checked and counted. `base` is added to values' positions. */
static void rmq_walk_block(rmq_sorted_block *b, const rmq_entries *into, int64_t base) {
    const int64_t stop = rmq_entries_end(b->bytes, b->size);
    b->entries = b->key_bytes = b->position = 0;
    b->status = stop < 0 ? RMQ_BLOCK_RESTARTS : RMQ_BLOCK_SOUND;
    if (stop <= 0) return; /* there may be no bytes at all */
    const uint8_t *const end = b->bytes + stop;
    const uint8_t *p = b->bytes;
    int64_t before = 0, start = 0, finish = 0; /* length of the key before, and its value */
    while (p < end) {
        uint64_t shared, unshared, length = 0;
        b->position = p - b->bytes;
        p = rmq_varint(p, end, 32, &shared);
        if (p != NULL) p = rmq_varint(p, end, 32, &unshared);
        if (p != NULL && !b->is_delta) p = rmq_varint(p, end, 32, &length);
        if (p == NULL || unshared + length > (uint64_t)(end - p)) {
            b->status = RMQ_BLOCK_ENTRY;
            return;
        }
        const int64_t key = (int64_t)(shared + unshared);
        if ((int64_t)shared > before) b->status = RMQ_BLOCK_SHARED;
        if (key < b->least_key) b->status = RMQ_BLOCK_SHORT_KEY;
        if (b->key_bytes + key > RMQ_MOST_REPEATED * (b->size + 64)) b->status = RMQ_BLOCK_REPEATED;
        if (b->status != RMQ_BLOCK_SOUND) return;
        const uint8_t *const value = p + unshared;
        if (into != NULL && key > 0) { /* else there may be no memory for keys */
            uint8_t *const to = into->keys + b->key_bytes;
            memmove(to, to - before, (size_t)shared);
            memcpy(to + shared, p, (size_t)unshared);
        }
        if (b->is_index) {
            const uint8_t *const after = b->is_delta ? end : value + length;
            p = rmq_handle(value, after, b->is_delta && shared > 0, &start, &finish);
            if (p == NULL || (!b->is_delta && p != after)) {
                b->status = RMQ_BLOCK_HANDLE;
                return;
            }
        } else {
            start = base + (value - b->bytes);
            finish = start + (int64_t)length;
            p = value + length;
        }
        b->key_bytes += key;
        if (into != NULL) {
            into->key_ends[b->entries] = b->key_bytes;
            into->value_starts[b->entries] = start;
            into->value_ends[b->entries] = finish;
        }
        b->entries += 1;
        before = key;
    }
}

#endif
