/* An index file: org.apache.rocketmq.store.index.IndexFile.putKey, for many entries.
 *
 *      0  i64 beginTimestamp    16  i64 beginPhyOffset    32  i32 hashSlotCount: slots that are not empty (since 4.7.1)
 *      8  i64 endTimestamp      24  i64 endPhyOffset      36  i32 indexCount: 1 + items; 0 in a new file counts as 1
 *     40  i32 x maxHashSlotNum: the newest item of the slot's chain, 0 is none
 *         20 bytes x maxIndexNum, the first of them never used:
 *           0  i32 keyHash    4  i64 phyOffset    12  i32 seconds since beginTimestamp    16  i32 item before in the chain
 */
#ifndef RMQ_INDEX_H
#define RMQ_INDEX_H

#include <stdint.h>
#include <string.h>

#include "unit.h"

enum { RMQ_INDEX_HEADER_SIZE = 40, RMQ_INDEX_SLOT_SIZE = 4, RMQ_INDEX_ITEM_SIZE = 20, RMQ_INDEX_AHEAD = 64 };

typedef struct {
    int64_t begin_timestamp, end_timestamp, begin_offset, end_offset;
    int32_t slot_count, count; /* `count` is the number of the next item */
} rmq_index_header;

static rmq_index_header rmq_load_index_header(const uint8_t *file) {
    const int32_t count = rmq_i32(file + 36);
    return (rmq_index_header){rmq_i64(file),      rmq_i64(file + 8),  rmq_i64(file + 16),
                              rmq_i64(file + 24), rmq_i32(file + 32), count <= 0 ? 1 : count};
}

static void rmq_save_index_header(uint8_t *file, const rmq_index_header *h) {
    rmq_put_i64(file, h->begin_timestamp);
    rmq_put_i64(file + 8, h->end_timestamp);
    rmq_put_i64(file + 16, h->begin_offset);
    rmq_put_i64(file + 24, h->end_offset);
    rmq_put_i32(file + 32, h->slot_count);
    rmq_put_i32(file + 36, h->count);
}

/* Whole seconds, as IndexFile counts them; the difference wraps as Java's does. */
static inline int32_t rmq_index_seconds(int64_t begin, int64_t timestamp) {
    if (begin <= 0) return 0;
    const int64_t seconds = (int64_t)((uint64_t)timestamp - (uint64_t)begin) / 1000;
    return seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* Put entries [start, n) until the file is full; returns the first entry that is not in the file, or -1 - i when key
 * hash i is invalid. */
static inline int64_t rmq_put_index(uint8_t *file, uint32_t slots, int32_t items, const int32_t *hashes,
                                    const int64_t *positions, const int64_t *timestamps, int64_t start, int64_t n,
                                    int64_t previous_timestamp, int64_t previous_offset) {
    uint8_t *const slot_table = file + RMQ_INDEX_HEADER_SIZE;
    uint8_t *const item_table = slot_table + (int64_t)RMQ_INDEX_SLOT_SIZE * slots;
    uint8_t *slot[RMQ_INDEX_AHEAD];
    rmq_index_header h = rmq_load_index_header(file);
    if (h.count <= 1 && previous_offset > 0) h.begin_offset = h.end_offset = previous_offset;
    if (h.count <= 1 && previous_timestamp > 0) h.begin_timestamp = h.end_timestamp = previous_timestamp;
    int64_t bad = 0;
    for (int64_t i = start; bad == 0 && i < n && h.count < items; ) {
        int64_t some = n - i < items - h.count ? n - i : items - h.count;
        if (some > RMQ_INDEX_AHEAD) some = RMQ_INDEX_AHEAD;
        /* The slots are scattered over a table far larger than a cache: prefetch them while the others are looked up.
         */
        for (int64_t k = 0; k < some; k++) {
            slot[k] = slot_table + (int64_t)RMQ_INDEX_SLOT_SIZE * ((uint32_t)hashes[i + k] % slots);
            __builtin_prefetch(slot[k], 1);
        }
        for (int64_t k = 0; k < some; k++, i++) {
            if (hashes[i] < 0) {
                bad = -1 - i;
                break;
            }
            int32_t before = rmq_i32(slot[k]);
            if (before <= 0 || before > h.count) before = 0;
            uint8_t *const item = item_table + (int64_t)RMQ_INDEX_ITEM_SIZE * h.count;
            rmq_put_i32(item, hashes[i]);
            rmq_put_i64(item + 4, positions[i]);
            rmq_put_i32(item + 12, rmq_index_seconds(h.begin_timestamp, timestamps[i]));
            rmq_put_i32(item + 16, before);
            rmq_put_i32(slot[k], h.count);
            if (h.count <= 1) {
                h.begin_offset = positions[i];
                h.begin_timestamp = timestamps[i];
            }
            if (before == 0 && h.slot_count < INT32_MAX) h.slot_count += 1;
            h.count += 1;
            h.end_offset = positions[i];
            h.end_timestamp = timestamps[i];
        }
        start = i;
    }
    rmq_save_index_header(file, &h);
    return bad != 0 ? bad : start;
}

#endif
