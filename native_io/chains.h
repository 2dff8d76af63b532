/* Chains of an index file (index.h), followed for many key hashes at once. */
#ifndef RMQ_CHAINS_H
#define RMQ_CHAINS_H

#include <stdint.h>

#include "file.h"
#include "index.h"
#include "memory.h"
#include "unit.h"

typedef struct {
    const uint8_t *memory; /* the file's first `size` bytes; bytes after them are read */
    int64_t size;
    rmq_file file;
    int64_t begin_offset, end_offset; /* from the header, like `count` */
    int64_t count, items;
    uint32_t slots;
} rmq_index_file;

/* RMQ_CHAINS_BROKEN also where reading failed, which file.error shows. */
enum { RMQ_CHAINS_FOLLOWED = 0, RMQ_CHAINS_NO_MEMORY = -1, RMQ_CHAINS_BROKEN = -2 };

/* The address of `n` bytes of the file; NULL where the file has become shorter, or reading fails. */
static const uint8_t *rmq_index_bytes(rmq_index_file *f, int64_t at, int64_t n, uint8_t *space) {
    if (at + n <= f->size) return f->memory + at;
    return rmq_read_file(&f->file, space, n, at) == n ? space : NULL;
}

/* Add to `found` the physical offsets of all items that have one of these hashes, which are not negative, and side by side
 * where they share a slot. A chain leads to smaller numbers and to physical offsets that are not larger, and all its items
 * are of its slot; items that the header does not know yet are passed over. */
static int rmq_follow_chains(rmq_index_file *f, const int32_t *hashes, int64_t n, rmq_list *found) {
    uint8_t space[RMQ_INDEX_ITEM_SIZE];
    const int64_t first_item = RMQ_INDEX_HEADER_SIZE + (int64_t)RMQ_INDEX_SLOT_SIZE * f->slots;
    for (int64_t i = 0, after; i < n; i = after) {
        const uint32_t slot = (uint32_t)hashes[i] % f->slots;
        for (after = i + 1; after < n && (uint32_t)hashes[after] % f->slots == slot;) after++;
        const uint8_t *p =
            rmq_index_bytes(f, RMQ_INDEX_HEADER_SIZE + (int64_t)RMQ_INDEX_SLOT_SIZE * slot, RMQ_INDEX_SLOT_SIZE, space);
        if (p == NULL) return RMQ_CHAINS_BROKEN;
        int64_t number = rmq_i32(p), before = f->items, latest = INT64_MAX;
        while (number != 0) {
            if (number < 0 || number >= before) return RMQ_CHAINS_BROKEN;
            p = rmq_index_bytes(f, first_item + RMQ_INDEX_ITEM_SIZE * number, RMQ_INDEX_ITEM_SIZE, space);
            if (p == NULL) return RMQ_CHAINS_BROKEN;
            const int32_t hash = rmq_i32(p), previous = rmq_i32(p + 16);
            const int64_t offset = rmq_i64(p + 4);
            const int known = number < f->count;
            if (known && latest > f->end_offset) latest = f->end_offset;
            if (offset < (known ? f->begin_offset : f->end_offset) || offset > latest) return RMQ_CHAINS_BROKEN;
            if (hash < 0 || (uint32_t)hash % f->slots != slot) return RMQ_CHAINS_BROKEN;
            /* A wiped item, which in slot 0 of the first file would look like the end of a chain. */
            if ((hash | previous | rmq_i32(p + 12)) == 0 && offset == 0) return RMQ_CHAINS_BROKEN;
            for (int64_t k = i; known && k < after; k++) {
                if (hashes[k] != hash) continue;
                if (rmq_list_reserve(found, 1, sizeof offset) != 0) return RMQ_CHAINS_NO_MEMORY;
                ((int64_t *)found->data)[found->size++] = offset;
                break;
            }
            before = number;
            latest = offset;
            number = previous;
        }
    }
    return RMQ_CHAINS_FOLLOWED;
}

#endif
